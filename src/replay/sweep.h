#pragma once
// A sweep is the same rule with other numbers in it: every combination of the
// durations and limits that --sweep names. They are all judged in one reading.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rule/policy.h"

namespace lull::replay {

// One --sweep: "for=5m,15m,1h" or "util=1,5,10".
struct Axis {
  std::string name;  // "for", or a signal
  std::vector<std::string> values;
};
Result<Axis> parse_axis(std::string_view text);

struct Combination {
  std::vector<std::size_t> choice;  // for each axis, which of its values
  Policy policy;
};

inline constexpr std::size_t kMostCombinations = 1000;

// In the order of a table: the last axis changes fastest. `for` is sorted from short to long.
Result<std::vector<Combination>> combine(const Policy& base, std::vector<Axis>& axes);

// A rule without a `for` that is swept over one starts from the first value that was named.
Result<> start_from_first(Policy& policy, const std::vector<Axis>& axes);

}  // namespace lull::replay
