#include "sense/nvml/power_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kMomentLook = 600ms;
constexpr Duration kCompare = 1s;  // over at least this
constexpr double kFarRatio = 1.5;
constexpr double kFarWatts = 30;
constexpr double kNearShare = 0.1;  // a module's counter of a busy GPU is a quarter off: that proves nothing
constexpr double kNearWatts = 15;
constexpr int kFarOften = 3;
constexpr int kNearOften = 2;

}  // namespace

void PowerMeter::Moments::add(Instant from, Instant to, double watts) {
  const double length = std::chrono::duration<double>(to - std::max(from, since)).count();
  ++looks;
  if (length <= 0) return;
  sum += watts * length;
  seconds += length;
}

double PowerMeter::Moments::coverage(Instant now) const {
  const double wanted = std::chrono::duration<double>(now - since).count();
  return wanted > 0 ? std::min(1.0, seconds / wanted) : 0;
}

void PowerMeter::look(Instant now, std::optional<std::uint64_t> millijoules, Instant exact,
                      std::optional<double> watts) {
  if (!begun_ || now < looked_) {
    const Counter known = counter_;
    *this = PowerMeter();
    counter_ = known;
    begun_ = true;
    moment_at_ = since_take_.since = since_compare_.since = now;
  }
  looked_ = now;
  moment_ = watts;
  energy_ = millijoules;
  energy_at_ = exact;
  if (watts) {
    const Instant from = std::max(moment_at_, now - kMomentStands);
    since_take_.add(from, now, *watts);
    since_compare_.add(from, now, *watts);
    moment_at_ = now;
  }
  if (!millijoules) {
    taking_.forget();
    comparing_.forget();
    comparing_begun_ = false;
  } else if (counter_ == Counter::unproven) {
    compare(*millijoules, now, exact);
  }
}

void PowerMeter::compare(std::uint64_t millijoules, Instant now, Instant exact) {
  const bool begin = !std::exchange(comparing_begun_, true);
  if (!begin && now - since_compare_.since < kCompare) return;
  const auto counted = comparing_.watts(millijoules, exact);
  const bool covered = since_compare_.coverage(now) >= kCoveredEnough;
  const double seen = since_compare_.mean();
  since_compare_ = {.since = now};
  if (begin) return;
  if (!counted) {  // stood still or leapt: what it counts from is not where the moments began
    comparing_.forget();
    comparing_begun_ = false;
  }
  if (!counted || !covered) return;
  const double more = *counted - seen;
  // A module draws more than its GPU at any time: a counter that says less is not a module's.
  const bool little_more = more <= std::max(kNearWatts, kNearShare * seen);
  const bool much_less = -more > kFarWatts && seen > kFarRatio * *counted;
  if (little_more && !much_less) {
    far_ = 0;
    if (++near_ >= kNearOften) counter_ = Counter::ours;
  } else if (std::abs(more) > kFarWatts && std::max(*counted, seen) > kFarRatio * std::min(*counted, seen)) {
    const int direction = more > 0 ? 1 : -1;
    far_ = far_ * direction > 0 ? far_ + direction : direction;
    if (std::abs(far_) >= kFarOften) counter_ = Counter::of_module;
  } else {
    far_ = 0;  // neither: a load that comes and goes
  }
}

bool PowerMeter::wants_moment(std::optional<std::uint64_t> millijoules, Instant exact) const {
  return counter_ != Counter::ours || !millijoules || !taking_.has_answer(*millijoules, exact);
}

MeterTake PowerMeter::take(Instant now) {
  MeterTake out;
  const bool first = !std::exchange(taken_, true);
  const std::optional<double> counted =
      energy_ && counter_ != Counter::of_module ? taking_.watts(*energy_, energy_at_) : std::nullopt;
  const double coverage = since_take_.coverage(now);
  const bool no_time = first || now <= since_take_.since;
  // A counter that nothing speaks for yet is used only where there is nothing better.
  if (counted && far_ == 0 && (near_ > 0 || counter_ == Counter::ours || coverage < kCoveredEnough)) {
    out = {.mean = *counted, .coverage = 1, .basis = Basis::mean, .absence = Absence::none};
  } else if (no_time && moment_) {
    out = {.mean = *moment_, .coverage = 0, .basis = Basis::instant, .absence = Absence::none};
  } else if (!no_time && coverage >= kCoveredEnough) {
    const Basis basis = since_take_.looks > 1 ? Basis::moments : Basis::instant;
    out = {.mean = since_take_.mean(), .coverage = coverage, .basis = basis, .absence = Absence::none};
  } else {
    out.coverage = no_time ? 0 : coverage;
  }
  since_take_ = {.since = now};
  return out;
}

Duration PowerMeter::look_within() const {
  if (!moment_ && !energy_) return kNoLook;
  if (counter_ == Counter::ours && energy_) return kNoLook;
  return uneven(kMomentLook, looked_);
}

}  // namespace lull
