#pragma once
// Numbers that nobody else has: for names, and as seeds.

#include <cstdint>

namespace lull {

// From the kernel. Not std::random_device, whose first question is to the processor (slow in virtual machines).
std::uint64_t random_bits();

}  // namespace lull
