#include "sense/intel/counters.h"

#include <algorithm>
#include <utility>

namespace lull {

void CounterMeter::add(CounterPoint point) {
  if (!points_.empty() && point.before < points_.back().before) restart();  // the clock was set back
  if (points_.empty()) taken_ = 0;
  points_.push_back(std::move(point));
  // The newest that is old enough is the last one that is needed before that of the last take.
  const Instant now = points_.back().before;
  while (points_.size() > 2 && taken_ > 0 && now - points_[1].before >= kShortestNewest) {
    points_.pop_front();
    --taken_;
  }
}

MeterTake CounterMeter::take() {
  MeterTake out;
  out.span = 2 * kPeriod;
  out.period = kPeriod;
  out.absence = Absence::no_baseline;
  if (points_.empty()) return out;
  const CounterPoint& now = points_.back();
  const std::size_t from = std::exchange(taken_, points_.size() - 1);
  if (from + 1 >= points_.size()) return out;
  const FileValue<double> mean = rate_(points_[from], now);
  if (!mean) {
    out.absence = mean.error();
    points_.erase(points_.begin(), points_.end() - 1);
    taken_ = 0;
    return out;
  }
  out = {.mean = *mean,
         .coverage = 1,
         .basis = Basis::mean,
         .absence = Absence::none,
         .span = out.span,
         .period = kPeriod};
  for (std::size_t i = points_.size() - 1; i-- > 0;) {
    if (now.before - points_[i].before < kShortestNewest) continue;
    out.span = now.after - points_[i].before;
    if (const auto newest = rate_(points_[i], now)) out.newest.add(*newest);
    break;
  }
  return out;
}

FileValue<double> BusyByIdle::operator()(const CounterPoint& from, const CounterPoint& to) {
  constexpr double kRounding = 1;        // ms
  constexpr double kClocksApart = 0.02;  // of the time: the card's clock and ours
  if (to.values.empty()) return std::unexpected(Absence::not_supported);
  if (from.values.size() != to.values.size()) return std::unexpected(Absence::no_baseline);
  moved_.resize(to.values.size());
  const double time = to_seconds(to.after - from.before) * 1000;
  if (time <= 0) return std::unexpected(Absence::no_baseline);
  double busiest = 0;
  for (std::size_t i = 0; i < to.values.size(); ++i) {
    if (!to.values[i]) return std::unexpected(to.values[i].error());
    if (!from.values[i]) return std::unexpected(Absence::no_baseline);
    double idle = *to.values[i] - *from.values[i];
    if (idle < 0) idle += kWrapsAt;
    if (idle < 0 || idle > time * (1 + kClocksApart) + 2 * kRounding) return std::unexpected(Absence::implausible);
    moved_[i] = moved_[i] || idle > 0;
    if (!moved_[i]) return std::unexpected(Absence::still);
    busiest = std::max(busiest, 1 - std::max(0.0, idle - kRounding) / time);
  }
  return std::clamp(busiest * 100, 0.0, 100.0);
}

FileValue<double> watts_between(const CounterPoint& from, const CounterPoint& to, double most_watts) {
  const FileValue<double>& end = to.values.front();
  const FileValue<double>& begin = from.values.front();
  if (!end) return std::unexpected(end.error());
  if (!begin) return std::unexpected(Absence::no_baseline);
  const double seconds = to_seconds(to.before - from.after);
  if (seconds <= 0) return std::unexpected(Absence::no_baseline);
  const double joules = (*end - *begin) / 1e6;
  if (joules == 0) return std::unexpected(Absence::still);
  if (*end / 1e6 <= most_watts * to_seconds(to.after - from.before)) return std::unexpected(Absence::no_baseline);
  const double watts = joules / seconds;
  if (!plausible(Metric::power, watts)) return std::unexpected(Absence::implausible);
  return watts;
}

}  // namespace lull
