#include "sim/values.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <vector>

#include "base/text.h"
#include "base/units.h"

namespace lull::sim {
namespace {

using enum ValueUnit;

constexpr std::array<ValueInfo, kMetrics> kTable = {{
    {Metric::util, "util", percent, 0, 100, "35", "share of time a kernel runs"},
    {Metric::mem_util, "mem_util", percent, 0, 100, "20", "memory controller activity"},
    {Metric::mem_used, "mem_used", bytes, 0, 16e12, "8GiB", "memory in use, without what the driver reserves"},
    {Metric::power, "power", watts, 0, 5000, "180", "power drawn"},
    {Metric::temp, "temp", celsius, 0, 150, "60", "temperature of the chip"},
    {Metric::fan, "fan", percent, 0, 100, "40", "fan speed"},
    {Metric::clock, "clock", megahertz, 0, 10000, "1410", "clock of the multiprocessors"},
    {Metric::mem_clock, "mem_clock", megahertz, 0, 50000, "5001", "clock of the memory"},
    {Metric::pstate, "pstate", none, 0, 15, "2", "performance state, 0 is the fastest"},
    {Metric::pcie_tx, "pcie_tx", bytes_per_second, 0, 1e12, "2GiB", "bytes a second over PCIe from the GPU"},
    {Metric::pcie_rx, "pcie_rx", bytes_per_second, 0, 1e12, "2GiB", "bytes a second over PCIe to the GPU"},
    {Metric::throttle, "throttle", bits, 0, 4294967295.0, "0x4", "why it throttles: NVML's bits, 4 is the power cap"},
    {Metric::encoder, "encoder", percent, 0, 100, "10", "video encoder in use"},
    {Metric::decoder, "decoder", percent, 0, 100, "10", "video decoder in use"},
    {Metric::power_limit, "power_limit", watts, 1, 5000, "300", "enforced power limit"},
    {Metric::compute_mode, "compute_mode", none, 0, 3, "3", "0 default, 2 prohibited, 3 exclusive process"},
    {Metric::mig_mode, "mig_mode", none, 0, 1, "1", "1: cut in MIG devices as the scenario says"},
    {Metric::persistence, "persistence", none, 0, 1, "1", "1: attaching takes no time"},
    {Metric::sm, "sm", percent, 0, 100, "60", "multiprocessors that work, by the chip's counters"},
    {Metric::tensor, "tensor", percent, 0, 100, "30", "tensor cores that work, likewise"},
    {Metric::dram, "dram", percent, 0, 100, "40", "bandwidth of the memory in use, likewise"},
}};

static_assert([] {
  for (std::size_t i = 0; i < kMetrics; ++i)
    if (static_cast<std::size_t>(kTable[i].metric) != i || kTable[i].name != kMetricNames[i]) return false;
  return true;
}());

std::string_view suffix_of(ValueUnit unit) {
  switch (unit) {
    case percent: return "%";
    case watts: return "W";
    case celsius: return "C";
    case megahertz: return "MHz";
    case bytes:
    case bytes_per_second:
    case bits:
    case none: break;
  }
  return "";
}

std::optional<double> to_hex(std::string_view digits) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

std::string range_of(const ValueInfo& value) {
  const bool size = value.unit == bytes || value.unit == bytes_per_second;
  return size ? "a size" : fmt::format("{:g} to {:g}", value.low, value.high);
}

}  // namespace

const std::array<ValueInfo, kMetrics>& value_table() { return kTable; }
const ValueInfo& value_info(Metric metric) { return kTable[static_cast<std::size_t>(metric)]; }

Result<const ValueInfo*> find_value(std::string_view name) {
  std::vector<std::string_view> names;
  for (const ValueInfo& value : kTable) {
    if (value.name == name) return &value;
    names.push_back(value.name);
  }
  const std::string hint = did_you_mean(name, names);
  return fail(fmt::format("there is no value '{}'{}", printable(name),
                          hint.empty() ? fmt::format(": {} are", fmt::join(names, ", ")) : hint));
}

Result<> check_value(const ValueInfo& value, double number) {
  if (number >= value.low && number <= value.high) return {};
  return fail(fmt::format("{} = {:g} is out of range: {} would be right, such as {}={}", value.name, number,
                          range_of(value), value.name, value.example));
}

Result<double> parse_value(const ValueInfo& value, std::string_view text) {
  const std::string_view whole = text = trim(text);
  if (text == "auto") return kDerive;
  if (text == "none") return kUnsupported;
  if (value.unit == none && value.high == 1 && (text == "on" || text == "off")) return text == "on" ? 1 : 0;
  std::optional<double> number;
  if (value.unit == bytes || value.unit == bytes_per_second) {
    if (value.unit == bytes_per_second && text.ends_with("/s")) text.remove_suffix(2);
    if (const auto size = parse_size(text)) number = static_cast<double>(*size);
  } else if (value.unit == bits && text.starts_with("0x")) {
    number = to_hex(text.substr(2));
  } else {
    const std::string_view suffix = suffix_of(value.unit);
    if (!suffix.empty() && text.ends_with(suffix)) text = trim(text.substr(0, text.size() - suffix.size()));
    number = to_double(text);
  }
  if (!number)
    return fail(fmt::format("{}={} is not understood: {} would be right, such as {}={}, or {}=auto", value.name,
                            printable(whole), range_of(value), value.name, value.example, value.name));
  TRY(check_value(value, *number));
  return *number;
}

}  // namespace lull::sim
