#include "sim/changes.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"
#include "base/units.h"
#include "sim/values.h"

namespace lull::sim {
namespace {

// Whether a card that is read from files shows it.
bool has_value(Metric metric) {
  using enum Metric;
  switch (metric) {
    case util:
    case mem_util:
    case mem_used:
    case power:
    case power_limit:
    case temp:
    case fan:
    case clock:
    case mem_clock: return true;
    default: return false;
  }
}

}  // namespace

Result<std::vector<Change>> parse_change(std::string_view word, const std::vector<std::size_t>& gpus,
                                         const State& state) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos)
    return fail(fmt::format("'{}' is no NAME=VALUE: util=35 would be right", printable(word)));
  const std::string_view name = trim(word.substr(0, equals));
  const bool both = name == "pcie";
  const ValueInfo* info = TRY(find_value(both ? "pcie_rx" : name == "mig" ? "mig_mode" : name));
  const double number = TRY(parse_value(*info, word.substr(equals + 1)));
  std::vector<Change> changes;
  for (const std::size_t index : gpus) {
    const Gpu& gpu = state.gpus[index];
    if (info->metric == Metric::fan && gpu.fans == 0 && std::isfinite(number))
      return fail(fmt::format("GPU {} ({}) has no fan", index, gpu.name));
    if (!in_nvml(gpu.vendor) && !has_value(info->metric))
      return fail(fmt::format("GPU {} ({}) does not show {}", index, gpu.name, info->name));
    if (info->metric == Metric::mig_mode && gpu.mig_capable == 0)
      return fail(fmt::format("GPU {} ({}) has no MIG", index, gpu.name));
    if (info->metric == Metric::mem_used && std::isfinite(number) && number > static_cast<double>(gpu.memory_total))
      return fail(fmt::format("mem_used={} is more than GPU {} has: {}", format_size(number), index,
                              format_size(static_cast<double>(gpu.memory_total))));
    changes.push_back({static_cast<unsigned>(index), info->metric, both ? number / 2 : number});
    if (both) changes.push_back({static_cast<unsigned>(index), Metric::pcie_tx, number / 2});
  }
  return changes;
}

Result<bool> parse_switch(std::string_view word) {
  const std::string_view value = word.substr(word.find('=') + 1);
  if (value == "on" || value == "1") return true;
  if (value == "off" || value == "0") return false;
  return fail(fmt::format("'{}' is not understood: on or off would be right", printable(word)));
}

Result<> take_back(Writer& writer, const std::vector<std::size_t>& gpus) {
  std::vector<Change> changes;
  for (const std::size_t gpu : gpus) {
    for (unsigned metric = 0; metric < kMetrics; ++metric)
      changes.push_back({static_cast<unsigned>(gpu), static_cast<Metric>(metric), kDerive});
    TRY(writer.clear_faults(static_cast<std::int32_t>(gpu)));
    (void)writer.put_to_sleep(static_cast<unsigned>(gpu), false);  // where it has such a file at all
  }
  return writer.set(changes);
}

}  // namespace lull::sim
