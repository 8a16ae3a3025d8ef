#pragma once
// Unique numbers: for names, and as seeds.

#include <sys/random.h>
#include <unistd.h>

#include <cstdint>

#include "base/clock.h"

namespace lull {

// From the kernel. Not std::random_device, whose first question is to the processor (slow in virtual machines).
inline std::uint64_t random_bits() {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) == sizeof bits) return bits;
  const auto now = static_cast<std::uint64_t>(SystemClock().now().time_since_epoch().count());
  return now << 22U ^ static_cast<std::uint64_t>(::getpid());
}

}  // namespace lull
