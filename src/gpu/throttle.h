#pragma once
// Why a GPU runs slower than it could, as the driver's bits and in words. Some
// bits slow nothing down that anybody asked for (an idle GPU rests, an application
// has set its own clocks): a GPU with only those does not throttle.

#include <cstdint>
#include <string_view>
#include <vector>

namespace lull {

bool is_throttling(std::uint64_t reasons);

// A word for each reason that counts: "power_cap", "thermal". Empty: does not throttle.
std::vector<std::string_view> throttle_words(std::uint64_t reasons);

}  // namespace lull
