#include "view/live_status.h"

#include <fmt/format.h>

#include <array>
#include <chrono>

#include "base/text.h"
#include "gpu/metric.h"
#include "view/holders.h"

namespace lull {
namespace {

enum Order : std::size_t { gpu, util, memory, idle };
constexpr std::array<std::string_view, 4> kOrders = {"GPU", "util", "memory", "idle for"};

std::string basis_text(Basis basis, double coverage) {
  switch (basis) {
    case Basis::mean: return fmt::format("mean since the sample before, {:.0f} % of it measured", coverage * 100);
    case Basis::moments:
      return fmt::format("many moments since the sample before, {:.0f} % of it covered", coverage * 100);
    case Basis::instant: return "of the moment only";
    case Basis::unknown: break;
  }
  return {};
}

}  // namespace

std::span<const std::string_view> StatusRows::orders() const { return kOrders; }

std::string StatusRows::words(std::size_t row) const {
  const Device& device = view_.snapshot.inventory->devices[view_.devices[row]];
  const Reading& reading = view_.snapshot.readings[view_.devices[row]];
  std::string text = fmt::format("gpu{} {} {} ", device.label(), device.name, device.uuid);
  for (const Tenant& tenant : holders(reading))
    if (const ProcessInfo* process = known_process(tenant, view_.snapshot))
      text += fmt::format("{} {} {} ", process->user, tenant.pid, process->command_line());
  if (row < view_.extras.size() && view_.extras[row].lease)
    text += view_.extras[row].lease->user + " " + view_.extras[row].lease->command;
  return lowered(text);
}

double StatusRows::weight(std::size_t row, std::size_t order) const {
  const Reading& reading = view_.snapshot.readings[view_.devices[row]];
  if (order == util) return reading[Metric::util];
  if (order == memory) return reading[Metric::mem_used];
  const bool known = row < view_.extras.size() && view_.extras[row].idle_for;
  return known ? std::chrono::duration<double>(*view_.extras[row].idle_for).count() : kUnknown;
}

StatusView StatusRows::only(std::span<const std::size_t> rows) const {
  StatusView result{view_.snapshot, {}, {}};
  for (const std::size_t row : rows) {
    result.devices.push_back(view_.devices[row]);
    result.extras.push_back(row < view_.extras.size() ? view_.extras[row] : StatusExtra{});
  }
  return result;
}

std::vector<std::string> StatusRows::table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                           const Screen& screen) const {
  StatusView shown = only(rows);
  shown.marked = marked;
  return status_table(shown, screen);
}

std::vector<std::string> StatusRows::processes(std::span<const std::size_t> rows, const Screen& screen) const {
  return process_table(only(rows), screen);
}

std::vector<std::string> StatusRows::why(std::size_t row) const {
  const Device& device = view_.snapshot.inventory->devices[view_.devices[row]];
  const Reading& reading = view_.snapshot.readings[view_.devices[row]];
  std::vector<std::string> lines = {fmt::format("GPU {}  {}  {}", device.label(), printable(device.name), device.uuid)};
  if (const std::string trouble = device_trouble(device, reading); !trouble.empty()) lines.push_back("  " + trouble);
  if (const std::string text = basis_text(reading.util_basis, reading.util_coverage); !text.empty())
    lines.push_back("  util: " + text);
  if (const std::string text = basis_text(reading.power_basis, reading.power_coverage); !text.empty())
    lines.push_back("  power: " + text);
  std::string missing;
  for (const MetricInfo& metric : kMetricTable)
    if (const Absence absence = reading.why_missing(metric.metric);
        absence != Absence::none && absence != Absence::not_asked)
      missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", metric.name, lull::words(absence));
  if (!missing.empty()) lines.push_back("  unknown: " + missing);
  if (lines.size() == 1) lines.emplace_back("  everything that was asked for is known");
  return lines;
}

}  // namespace lull
