#include "gpu/power_learner.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lull {

double PowerLearner::seconds(double util) const {
  if (std::isnan(learned_.idle_watts) || other_limit_) return 0;
  const Slope& slope = slope_of(util);
  return slope.value > 0 ? learned_.seconds * slope.part : 0;
}

void PowerLearner::changed() { of_all_.stale = of_heavy_.stale = true; }

const PowerLearner::Slope& PowerLearner::slope_of(double util) const {
  const bool heavy = util >= kHeavyUtil;
  Slope& slope = heavy ? of_heavy_ : of_all_;
  if (!slope.stale) return slope;
  slope = {};
  if (std::isnan(learned_.idle_watts)) return slope;
  std::array<double, kMostWindows> slopes;
  std::size_t count = 0;
  for (const Window& one : learned_.windows)
    if (!heavy || static_cast<double>(one.util) >= kHeavyUtil)
      slopes[count++] = (static_cast<double>(one.watts) - learned_.idle_watts) / static_cast<double>(one.util);
  if (count == 0) return slope;
  const auto middle = slopes.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(slopes.begin(), middle, slopes.begin() + static_cast<std::ptrdiff_t>(count));
  slope.value = *middle;
  if (count % 2 == 0) slope.value = (slope.value + *std::max_element(slopes.begin(), middle)) / 2;
  slope.part = static_cast<double>(count) / static_cast<double>(learned_.windows.size());
  return slope;
}

double PowerLearner::effort(double util, double watts) const {
  if (!(util >= kLeastUtil) || std::isnan(watts)) return kUnknown;
  const double usual = watts_per_percent(util) * util;
  return std::isnan(usual) ? kUnknown : std::clamp(100 * (watts - learned_.idle_watts) / usual, 0.0, kMostEffort);
}

// Another limit for a moment changes nothing for good; for a minute it makes another card of this one.
bool PowerLearner::limit_holds(Instant at, double limit) {
  if (std::isnan(limit)) return !other_limit_;
  if (std::isnan(learned_.limit_watts)) {
    learned_.limit_watts = limit;
    return true;
  }
  if (std::abs(limit - learned_.limit_watts) <= kOtherLimit * learned_.limit_watts) {
    other_limit_ = false;
    return true;
  }
  if (!std::exchange(other_limit_, true)) other_since_ = at;
  if (at - other_since_ < kEnough) return false;
  learned_ = {.idle_watts = learned_.idle_watts, .limit_watts = limit};
  passed_over_ = 0;
  changed();
  other_limit_ = false;
  return true;
}

void PowerLearner::see(Instant at, double util, double watts, double limit) {
  const Duration since = at - last_;
  const bool follows = std::exchange(begun_, true) && since > Duration::zero() && since <= kLongestInterval;
  last_ = at;
  if (!plausible(Metric::util, util) || !plausible(Metric::power, watts)) return drop_window();
  if (!limit_holds(at, plausible(Metric::power_limit, limit) ? limit : kUnknown) || !follows) return drop_window();
  if (span_ == Duration::zero()) util_sum_ = watts_sum_ = 0;
  span_ += since;
  util_sum_ += util * to_double(since);
  watts_sum_ += watts * to_double(since);
  if (span_ < kWindow) return;
  close_window(limit);
  drop_window();
}

void PowerLearner::close_window(double limit) {
  const double seconds = to_double(span_);
  const double util = util_sum_ / seconds;
  const double watts = watts_sum_ / seconds;
  if (util < kIdleUtil) {
    if (watts >= learned_.idle_watts) return;
    learned_.idle_watts = watts;
    changed();
    return;
  }
  if (util < kLeastUtil) return;
  if (util >= kFullUtil) {
    if (watts * 100 < kHungShare * limit) return;
    if (this->seconds(util) >= to_double(kFirm) && effort(util, watts) < kHungEffort) return;
  }
  learned_.seconds += std::min(seconds, to_double(kMostCounted));
  keep({static_cast<float>(util), static_cast<float>(watts)});
}

void PowerLearner::keep(Window window) {
  if (!learned_.windows.empty() && ++passed_over_ < learned_.stride) return;
  passed_over_ = 0;
  std::vector<Window>& windows = learned_.windows;
  if (windows.size() >= kMostWindows) {
    for (std::size_t i = 0; 2 * i < windows.size(); ++i) windows[i] = windows[2 * i];
    windows.resize((windows.size() + 1) / 2);
    learned_.stride *= 2;
  }
  windows.push_back(window);
  if (++unused_ * 16 < windows.size()) return;  // the median of so many hardly moves by a few more
  unused_ = 0;
  changed();
}

bool any_learned(const std::vector<Metric>& signals) { return std::ranges::any_of(signals, is_learned); }

std::vector<Metric> made_of(const std::vector<Metric>& signals) {
  std::vector<Metric> all;
  const auto add = [&](Metric metric) {
    if (!is_learned(metric) && std::ranges::find(all, metric) == all.end()) all.push_back(metric);
  };
  std::ranges::for_each(signals, add);
  if (any_learned(signals)) std::ranges::for_each(kLearnedFrom, add);
  return all;
}

void learn(PowerLearner& learner, const Device& device, Instant at, Reading& reading) {
  const double util = reading[Metric::util];
  const double watts = reading[Metric::power];
  reading.effort_newest = {};
  reading.watts_per_percent = device.idle_looks_hung ? kUnknown : learner.watts_per_percent(util);
  const Metric missing = std::isnan(watts) ? Metric::power : Metric::util;
  if (std::isnan(util) || std::isnan(watts)) {
    for (const Metric metric : {Metric::effort, Metric::learned, Metric::idle_power})
      reading.miss(metric, reading.why_missing(missing));
  } else {
    const auto put = [&](Metric metric, double value, Absence why) {
      std::isnan(value) ? reading.miss(metric, why) : reading.set(metric, value);
    };
    put(Metric::idle_power, learner.idle_watts(), Absence::not_learned);
    if (device.idle_looks_hung) {  // where an idle program may read 100 %
      reading.miss(Metric::effort, Absence::looks_hung);
      reading.miss(Metric::learned, Absence::looks_hung);
    } else {
      put(Metric::learned, learner.seconds(util), Absence::not_learned);
      const bool learned = !std::isnan(learner.watts_per_percent(util));
      put(Metric::effort, learner.effort(util, watts), learned ? Absence::little_work : Absence::not_learned);
      const Band utils = reading.newest(Metric::util);
      const Band powers = reading.newest(Metric::power);
      const double least = learner.effort(utils.high, powers.low);
      const double most =
          utils.low < PowerLearner::kLeastUtil ? PowerLearner::kMostEffort : learner.effort(utils.low, powers.high);
      if (!std::isnan(least) && !std::isnan(most)) reading.effort_newest = {least, most};
    }
  }
  // What a card draws asleep is not what it draws idle.
  learner.see(at, reading.asleep ? kUnknown : util, watts, reading[Metric::power_limit]);
}

Block LearnedColumns::add(PowerLearner& learner, const Block& block, bool looks_hung) {
  const auto value = [](std::span<const float> column, std::size_t i) {
    return column.empty() ? kUnknown : static_cast<double>(column[i]);
  };
  const std::span<const float> util = block[Metric::util];
  const std::span<const float> power = block[Metric::power];
  const std::span<const float> limit = block[Metric::power_limit];
  for (std::size_t i = 0; i < block.size(); ++i) {
    const double percent = value(util, i);
    const double watts = value(power, i);
    const bool known = plausible(Metric::util, percent) && plausible(Metric::power, watts);
    columns_[0][i] = known && !looks_hung ? static_cast<float>(learner.effort(percent, watts)) : kUnknownSample;
    columns_[1][i] = known && !looks_hung ? static_cast<float>(learner.seconds(percent)) : kUnknownSample;
    columns_[2][i] = known ? static_cast<float>(learner.idle_watts()) : kUnknownSample;
    learner.see(block.at[i], percent, watts, value(limit, i));
  }
  Block with = block;
  with.value[index_of(Metric::effort)] = {columns_[0].data(), block.size()};
  with.value[index_of(Metric::learned)] = {columns_[1].data(), block.size()};
  with.value[index_of(Metric::idle_power)] = {columns_[2].data(), block.size()};
  return with;
}

}  // namespace lull
