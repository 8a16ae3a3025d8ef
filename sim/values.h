#pragma once
// The values of a simulated GPU that a person may set, in one table: their names
// (the signals' own names where lull has such a signal), units and ranges.

#include <array>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "sim/state.h"

namespace lull::sim {

enum class ValueUnit : std::uint8_t { percent, bytes, watts, celsius, megahertz, bytes_per_second, bits, none };

struct ValueInfo {
  Metric metric;
  std::string_view name;
  ValueUnit unit;
  double low;
  double high;
  std::string_view example;
  std::string_view meaning;
};

// The table, in the order of sim::Metric.
const std::array<ValueInfo, kMetrics>& value_table();
const ValueInfo& value_info(Metric metric);

Result<const ValueInfo*> find_value(std::string_view name);

// "35", "35%", "180W", "8GiB", "60C", "1410MHz"; "auto" is kDerive, "none" is kUnsupported.
Result<double> parse_value(const ValueInfo& info, std::string_view text);
Result<> check_value(const ValueInfo& info, double number);

}  // namespace lull::sim
