#include "act/past.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace lull {
namespace {

constexpr std::size_t kMostParts = 64;   // of a level: the oldest is no longer than a 64th of what lies behind it
constexpr std::size_t kMostLevels = 24;  // 2^30 samples
constexpr std::array<std::string_view, 3> kNames = {"util", "power", "effort"};

}  // namespace

const std::vector<Metric>& Past::metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> found;
    for (const std::string_view name : kNames)
      if (const auto metric = metric_by_name(name)) found.push_back(*metric);
    return found;
  }();
  return all;
}

void Past::add(const Snapshot& snapshot) {
  if (!snapshot.inventory) return;
  const auto& devices = snapshot.inventory->devices;
  // A value is of the time since the sample before, of which there was none at first.
  Part part{levels_.empty() ? snapshot.at : newest_, snapshot.at, {}};
  part.values.resize(gpus_.size() * metrics().size());
  for (std::size_t i = 0; i < std::min(devices.size(), snapshot.readings.size()); ++i) {
    const DeviceId id = devices[i].id();
    const auto place = static_cast<std::size_t>(std::ranges::find(gpus_, id) - gpus_.begin());
    if (place == gpus_.size()) {
      gpus_.push_back(id);
      part.values.resize(gpus_.size() * metrics().size());
    }
    for (std::size_t m = 0; m < metrics().size(); ++m) {
      const auto value = static_cast<float>(snapshot.readings[i][metrics()[m]]);
      part.values[place * metrics().size() + m] = {value, value};
    }
  }
  newest_ = snapshot.at;
  if (levels_.empty()) levels_.emplace_back();
  levels_[0].push_back(std::move(part));
  for (std::size_t level = 0; level < levels_.size() && levels_[level].size() > kMostParts; ++level) {
    Part older = joined(levels_[level][0], levels_[level][1]);
    levels_[level].erase(levels_[level].begin(), levels_[level].begin() + 2);
    if (level + 1 == kMostLevels) break;
    if (level + 1 == levels_.size()) levels_.emplace_back();
    levels_[level + 1].push_back(std::move(older));
  }
}

Past::Part Past::joined(const Part& older, const Part& newer) {
  Part part{older.from, newer.to, {}};
  part.values.resize(std::max(older.values.size(), newer.values.size()));
  for (std::size_t i = 0; i < std::min(older.values.size(), newer.values.size()); ++i) {
    const Value& a = older.values[i];
    const Value& b = newer.values[i];
    if (!std::isnan(a.low) && !std::isnan(b.low)) part.values[i] = {std::min(a.low, b.low), std::max(a.high, b.high)};
  }
  return part;
}

std::vector<Past::Cell> Past::cells(const DeviceId& gpu, Metric metric, Instant begin, Instant end) const {
  std::vector<Cell> found;
  const auto place = static_cast<std::size_t>(std::ranges::find(gpus_, gpu) - gpus_.begin());
  const auto column = static_cast<std::size_t>(std::ranges::find(metrics(), metric) - metrics().begin());
  if (place == gpus_.size() || column == metrics().size()) return found;
  const std::size_t at = place * metrics().size() + column;
  for (std::size_t level = levels_.size(); level-- > 0;)
    for (const Part& part : levels_[level]) {
      if (part.to <= begin || part.to > end) continue;
      const Value value = at < part.values.size() ? part.values[at] : Value{};
      found.push_back({std::max(part.from, begin), part.to, value.low, value.high});
    }
  return found;
}

}  // namespace lull
