#include "gpu/own_signal.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <mutex>
#include <string>

#include "base/text.h"

namespace lull {
namespace {

constexpr std::size_t kLongestName = 40;
constexpr MetricRange kAnyNumber = {-static_cast<double>(std::numeric_limits<float>::max()),
                                    static_cast<double>(std::numeric_limits<float>::max())};
// What has a meaning in a rule or is a column of a trace.
constexpr std::array<std::string_view, 22> kTaken = {
    "and",  "or",   "not", "for",  "all",  "any",  "mean", "max",     "min",   "time",   "gpu",
    "uuid", "host", "job", "pids", "user", "none", "who",  "command", "lease", "sample", "samples"};

// Written once each, in order, before `count` says so: reading takes no lock.
struct Names {
  std::mutex writing;
  std::atomic<std::size_t> count = 0;
  std::array<std::string, kOwnSignals> name;
  std::array<std::string, kOwnSignals> field;
  std::array<MetricInfo, kOwnSignals> row = {};
};

Names& names() {
  static Names& all = *new Names;  // outlives every thread
  return all;
}

bool is_name(std::string_view name) {
  if (name.empty() || name.size() > kLongestName || name.front() < 'a' || name.front() > 'z') return false;
  return std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; });
}

}  // namespace

const MetricInfo& own_signal(std::size_t place) { return names().row[place]; }

std::span<const MetricInfo> own_signals() { return {names().row.data(), names().count.load()}; }

std::optional<Metric> own_signal_by(std::string_view name_or_field) {
  for (const MetricInfo& row : own_signals())
    if (row.name == name_or_field || row.field == name_or_field) return row.metric;
  return std::nullopt;
}

Result<Metric> name_signal(std::string_view name) {
  if (!is_name(name))
    return fail(fmt::format("'{}' is not a valid signal name: use small letters, digits and _, such as requests",
                            printable(name)));
  for (const MetricInfo& row : kMetricTable)
    if (row.name == name || row.field == name)
      return fail(fmt::format("'{0}' is a signal that lull has: give yours another name, such as my_{0}", name));
  if (std::ranges::find(kTaken, name) != kTaken.end())
    return fail(fmt::format("'{0}' has a meaning of its own: give the signal another name, such as my_{0}", name));
  Names& all = names();
  const std::lock_guard lock(all.writing);
  if (const auto known = own_signal_by(name)) return *known;
  const std::size_t place = all.count.load();
  if (place == kOwnSignals)
    return fail(fmt::format("signal '{}': there are {} of your own already, and no more can be", name, kOwnSignals));
  all.name[place] = name;
  all.field[place] = std::string(kOwnFieldPrefix) + all.name[place];
  const auto metric = static_cast<Metric>(kBuiltInMetrics + place);
  all.row[place] = metric_row(metric, all.name[place], all.field[place], Unit::none, Of::machine, kAnyNumber,
                              "a signal of your own");
  all.count.store(place + 1);
  return metric;
}

}  // namespace lull
