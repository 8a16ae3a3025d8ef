#include "sense/nvml/meters.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ranges>
#include <utility>

#include "gpu/metric.h"

namespace lull {
namespace {

constexpr Duration kShortestEnergySpan =
    std::chrono::milliseconds(100);  // below, the counter's own steps are what one sees

using std::chrono::microseconds;

constexpr std::int64_t kNear = 2'000'000;                // µs; the driver promises at least one sample a second
constexpr std::int64_t kKept = 15'000'000;               // µs; a dry buffer holds nothing older, else the clock was set
constexpr std::int64_t kLongest = 1'000'000;             // µs between two samples; more is a gap
constexpr std::int64_t kShortestPeriod = 1'000'000 / 6;  // µs; of a sample that has no neighbour to measure by
constexpr std::uint64_t kLatest = std::uint64_t{1} << 62;

std::int64_t micros(Duration since) { return std::chrono::duration_cast<microseconds>(since).count(); }

using namespace std::chrono_literals;

constexpr Duration kRingLook = 5s;         // half of what a ring holds
constexpr Duration kUtilInterval = 200ms;  // NVML promises that a moment is of the last 1/6 s at least
constexpr Duration kDryLook = 1s;          // how often a ring that is not relied on is asked again
constexpr Duration kLongestLag = 1500ms;   // the driver promises at least one sample a second
constexpr Duration kRingHolds = 10s;
constexpr Duration kFinest = 20ms;         // of the moments that are kept apart
constexpr Duration kShortestRing = 100ms;  // no ring records more often
constexpr Duration kLongestMoment = 1s;    // a moment is of the last second at most

constexpr Duration kPowerInterval = 600ms;
constexpr Duration kCompare = 1s;  // over at least this
constexpr double kFarRatio = 1.5;
constexpr double kFarWatts = 30;
constexpr double kNearShare = 0.1;  // a module's counter of a busy GPU is a quarter off: that proves nothing
constexpr double kNearWatts = 15;
constexpr int kFarOften = 3;
constexpr int kNearOften = 2;

}  // namespace

bool EnergyMeter::comparable(std::uint64_t millijoules, Instant now) const {
  return known_ && millijoules >= millijoules_ && now > at_;
}

double EnergyMeter::since(std::uint64_t millijoules, Instant now) const {
  const double seconds = std::chrono::duration<double>(now - at_).count();
  return static_cast<double>(millijoules - millijoules_) / 1000 / seconds;
}

bool EnergyMeter::has_answer(std::uint64_t millijoules, Instant now) const {
  return comparable(millijoules, now) && now - at_ >= kShortestEnergySpan && millijoules != millijoules_ &&
         plausible(Metric::power, since(millijoules, now));
}

std::optional<double> EnergyMeter::watts(std::uint64_t millijoules, Instant now) {
  if (comparable(millijoules, now) && (now - at_ < kShortestEnergySpan || millijoules == millijoules_))
    return std::nullopt;  // keep looking
  const bool answer = has_answer(millijoules, now);
  const double mean = answer ? since(millijoules, now) : 0;
  known_ = true;
  millijoules_ = millijoules;
  at_ = now;
  return answer ? std::optional(mean) : std::nullopt;
}

double number_of(const nvml::Value& value, unsigned value_type) {
  switch (value_type) {
    case nvml::kValueDouble: return value.d;
    case nvml::kValueUint: return value.ui;
    case nvml::kValueUlong: return static_cast<double>(value.ul);
    case nvml::kValueUlonglong: return static_cast<double>(value.ull);
    case nvml::kValueSlonglong: return static_cast<double>(value.sll);
    default: return std::nan("");
  }
}

RingClocks RingClocks::at(const Clock& clock, Instant now) {
  timespec ts{};
  ::clock_gettime(CLOCK_MONOTONIC, &ts);
  const Duration monotonic = std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
  const Duration suspended = SystemClock().now().time_since_epoch() - monotonic;
  const Duration since = now.time_since_epoch();
  const Duration wall_ahead = clock.wall().time_since_epoch() - clock.now().time_since_epoch();
  return {micros(since), micros(since - suspended), micros(since + wall_ahead)};
}

void Ring::collect(std::span<const nvml::Sample> samples, unsigned value_type) {
  entries_.clear();
  for (const nvml::Sample& sample : samples) {
    if (sample.timestamp == 0 || sample.timestamp > kLatest) continue;
    const double value = number_of(sample.value, value_type);
    const bool percentage = value >= 0 && value <= 100;
    entries_.push_back({static_cast<std::int64_t>(sample.timestamp), percentage ? value : std::nan("")});
  }
  if (!std::ranges::is_sorted(entries_, {}, &Entry::at)) std::ranges::stable_sort(entries_, {}, &Entry::at);
  const auto twice = std::ranges::unique(entries_, {}, &Entry::at);
  entries_.erase(twice.begin(), twice.end());
}

// The median, so that a gap does not count.
void Ring::find_usual() {
  distances_.clear();
  for (std::size_t i = 1; i < entries_.size(); ++i) distances_.push_back(entries_[i].at - entries_[i - 1].at);
  if (distances_.empty()) return;  // as it was
  const auto middle = distances_.begin() + static_cast<std::ptrdiff_t>(distances_.size() / 2);
  std::ranges::nth_element(distances_, middle);
  usual_ = microseconds(std::min(*middle, kLongest));
}

std::optional<std::int64_t> Ring::age(std::int64_t clock_now) const {
  for (const Entry& entry : std::views::reverse(entries_))
    if (entry.at <= clock_now + kNear) return clock_now - entry.at;
  return std::nullopt;
}

std::optional<std::int64_t> Ring::find_clock(const RingClocks& clocks) {
  const auto reading = [&](Stamps stamps) {
    return stamps == Stamps::wall ? clocks.wall : stamps == Stamps::monotonic ? clocks.monotonic : clocks.boot;
  };
  if (stamps_ != Stamps::unknown) {
    const auto known = age(reading(stamps_));
    if (known && *known <= kKept) return reading(stamps_);
  }
  stamps_ = Stamps::unknown;
  std::int64_t nearest = kNear;
  for (const Stamps one : {Stamps::boot, Stamps::monotonic, Stamps::wall}) {
    const auto found = age(reading(one));
    if (!found || std::abs(*found) > nearest || (stamps_ != Stamps::unknown && std::abs(*found) == nearest)) continue;
    nearest = std::abs(*found);
    stamps_ = one;
  }
  return stamps_ == Stamps::unknown ? std::nullopt : std::optional(reading(stamps_));
}

std::optional<std::span<const RingSpan>> Ring::place(std::span<const nvml::Sample> samples, unsigned value_type,
                                                     Instant now, const RingClocks& clocks) {
  collect(samples, value_type);
  spans_.clear();
  if (entries_.empty()) return spans_;
  find_usual();
  const auto clock_now = find_clock(clocks);
  if (!clock_now) return std::nullopt;
  const std::int64_t usual = usual_ > Duration::zero() ? micros(usual_) : kShortestPeriod;
  const std::int64_t most = std::min(2 * usual, kLongest);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::int64_t old = *clock_now - entries_[i].at;
    if (old < -kNear) break;  // of the future: left from before the clock was set back
    const std::int64_t distance = i == 0 ? usual : entries_[i].at - entries_[i - 1].at;
    const Instant to = now - microseconds(std::max<std::int64_t>(old, 0));
    spans_.push_back({to - microseconds(distance <= most ? distance : usual), to, entries_[i].percent});
  }
  return spans_;
}

std::optional<Duration> idle_tail(std::span<const RingSpan> spans, Instant now) {
  if (spans.empty() || now - spans.back().to > microseconds(kNear)) return std::nullopt;
  std::optional<Instant> since;
  Instant after = spans.back().to;
  for (const RingSpan& span : std::views::reverse(spans)) {
    if (!(span.percent < kIdleBelow) || after - span.to > microseconds(1)) break;
    since = after = span.from;
  }
  if (!since) return std::nullopt;
  return spans.back().to - *since;
}

void publish(Reading& reading, Metric metric, const MeterTake& take, const Moment& moment) {
  const bool is_util = metric == Metric::util;
  (is_util ? reading.util_coverage : reading.power_coverage) = take.coverage;
  (is_util ? reading.util_newest : reading.power_newest) = take.newest;
  // The card has just refused to answer: what it said before that is not how it is now.
  const bool refused = !moment.value && !moment.other && moment.why != Absence::none;
  if (take.absence == Absence::none && !refused) {
    reading.set(metric, take.mean);
    (is_util ? reading.util_basis : reading.power_basis) = take.basis;
  } else {
    const bool fails = moment.why != Absence::none && (take.coverage == 0 || !moment.other);
    reading.miss(metric, fails ? moment.why : take.absence);
  }
}

void publish_util(Reading& reading, const MeterTake& take, const Moment& moment) {
  publish(reading, Metric::util, take, moment);
  reading.newest_span = take.span;
  reading.newest_period = take.period;
  // Of a dry ring the moment's value is all there is. It is of the last whole period, which may have begun two
  // periods ago. A zero needs no more than that this period has ended since: work in any part of it would show.
  const bool still = moment.value == 0 && reading[Metric::mem_util] == 0;
  if (still && take.period == Duration::zero()) reading.newest_span = take.span / 2;
}

// Good enough to fall out of step with anything: the bits of the clock, mixed (splitmix64).
Duration uneven(Duration most, Instant last) {
  auto x = static_cast<std::uint64_t>(last.time_since_epoch().count()) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return most - most / 3 * static_cast<Duration::rep>((x ^ (x >> 31)) % 1024) / 1024;
}

void UtilMeter::Sum::add(Instant from, Instant to, double percent) {
  const double length = to_seconds(to - from);
  value += percent * length;
  seconds += length;
}

void UtilMeter::begin(Instant now) {
  begun_ = true;
  taken_ = false;
  looked_ = moment_at_ = ring_looked_ = taken_from_ = settled_ = ring_settled_ = now;
  ring_ = moments_ = {};
  looks_ = 0;
  newest_.reset();
  pending_.clear();
}

void UtilMeter::look(Instant now, std::optional<double> moment, const RingLook& ring) {
  if (!begun_ || now < looked_) begin(now);
  if (moment) {
    remember({std::max(moment_at_, now - kMomentStands), now, *moment});
    if (now > moment_at_ || looks_ == 0) ++looks_;
    moment_at_ = now;
  }
  moment_ = moment;
  looked_ = now;
  switch (ring.state) {
    case RingLook::State::not_asked: settle(has_ring_ ? now - kRingHolds : now); break;
    case RingLook::State::none:
      has_ring_ = steady_ = false;
      newest_.reset();
      settle(now);
      ring_looked_ = now;
      break;
    case RingLook::State::read:
      has_ring_ = true;
      judge_ring(now, ring);
      remember_newest(ring);
      add_ring(now, ring);
      settle(now - lag_);
      ring_looked_ = now;
      break;
  }
}

// Whoever samples a thousand times a second gets no thousand of them: short ones are put together.
void UtilMeter::remember(const Stretch& moment) {
  if (moment.from >= moment.to) return;
  if (!pending_.empty() && pending_.back().to == moment.from && pending_.back().from >= settled_ &&
      moment.to - pending_.back().from <= kFinest) {
    Stretch& last = pending_.back();
    Sum sum;
    sum.add(last.from, last.to, last.percent);
    sum.add(moment.from, moment.to, moment.percent);
    last.to = moment.to;
    last.percent = sum.value / sum.seconds;
    return;
  }
  pending_.push_back(moment);
}

// Does the ring account for the last seconds without a hole? Only then may the next look be seconds away.
void UtilMeter::judge_ring(Instant now, const RingLook& ring) {
  lag_ = ring.usual > Duration::zero() ? std::clamp<Duration>(2 * ring.usual + 50ms, 300ms, kLongestLag) : kLongestLag;
  const Instant since = now - kRingLook;
  Duration covered{};
  Instant newest = since;
  for (const RingSpan& span : ring.spans) {
    if (std::isnan(span.percent) || span.to <= newest) continue;
    covered += span.to - std::max(span.from, newest);
    newest = span.to;
  }
  const bool whole = now - newest <= lag_ && to_seconds(covered) >= kCoveredEnough * to_seconds(newest - since);
  if (steady_ && !whole) fickle_ = true;
  steady_ = whole && !fickle_;
}

void UtilMeter::remember_newest(const RingLook& ring) {
  if (ring.usual > Duration::zero()) usual_ = ring.usual;
  if (ring.spans.empty()) return;  // the one that we know of grows old
  newest_ = ring.spans.back();
  newest_band_ = {};
  for (const RingSpan& span : ring.spans) {
    if (span.to <= newest_->to - usual_ && span.to != newest_->to) continue;
    if (std::isnan(span.percent)) newest_->percent = span.percent;  // one that is unknown makes all of them so
    newest_band_.add(span.percent);
  }
}

// The driver's newest sample and the moment's value. A ring that is dry says nothing, and a sample that is no
// percentage makes the newest data unknown.
void UtilMeter::add_newest(Instant now, MeterTake& take) const {
  // A moment's value is of the last whole period, which may have begun two periods ago.
  take.span =
      2 * (usual_ > Duration::zero() ? std::clamp<Duration>(usual_, kUtilInterval, kLongestMoment) : kLongestMoment);
  if (newest_ && now - newest_->to <= kLongestLag) {
    take.span = now - newest_->from;
    take.period = usual_;
    if (std::isnan(newest_->percent)) return;
    take.newest = newest_band_;
  }
  if (moment_) take.newest.add(*moment_);
}

void UtilMeter::add_ring(Instant now, const RingLook& ring) {
  for (const RingSpan& span : ring.spans) {
    const Instant to = std::min(span.to, now);
    if (to <= settled_ || std::isnan(span.percent)) continue;
    settle(span.from);
    ring_.add(std::max(settled_, span.from), to, span.percent);
    settled_ = ring_settled_ = to;
  }
  settle(settled_);
}

void UtilMeter::settle(Instant until) {
  std::size_t done = 0;
  for (const Stretch& moment : pending_) {
    const Instant from = std::max(moment.from, settled_);
    const Instant to = std::min(moment.to, until);
    if (from < to) moments_.add(from, to, moment.percent);
    if (moment.to <= std::max(until, settled_)) ++done;
  }
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(done));
  settled_ = std::max(settled_, until);
}

MeterTake UtilMeter::take(Instant now) {
  MeterTake out;
  const bool first = !std::exchange(taken_, true);
  // The end of the time, which the ring will account for by the next take: as the moments have it until then.
  Sum sum{ring_.value + moments_.value, ring_.seconds + moments_.seconds};
  const double before_tail = sum.seconds;
  for (const Stretch& moment : pending_) {
    const Instant from = std::max(moment.from, settled_);
    if (from < moment.to) sum.add(from, moment.to, moment.percent);
  }
  double open = to_seconds(now - settled_) - (sum.seconds - before_tail);
  if (ring_settled_ != settled_ || now - settled_ > lag_) open = 0;  // that is not the ring's to account for
  const double wanted = to_seconds(now - taken_from_) - std::max(open, 0.0);
  const bool no_time = first || now <= taken_from_;
  if (!no_time) out.coverage = wanted > 0 ? std::min(1.0, sum.seconds / wanted) : 0;
  if (no_time && moment_) {
    out = {.mean = *moment_, .coverage = 0, .basis = Basis::instant, .absence = Absence::none};
  } else if (!no_time && sum.seconds > 0 && out.coverage >= kCoveredEnough) {
    out.mean = std::clamp(sum.value / sum.seconds, 0.0, 100.0);
    out.basis = ring_.seconds * 2 >= sum.seconds ? Basis::mean : looks_ > 1 ? Basis::moments : Basis::instant;
    out.absence = Absence::none;
  }
  add_newest(now, out);
  taken_from_ = settled_;
  ring_ = moments_ = {};
  looks_ = 0;
  return out;
}

Duration UtilMeter::look_within() const {
  if (steady_) return kRingLook;
  if (!moment_) return has_ring_ ? kDryLook : kNoLook;  // without both, util is not to be had here
  return uneven(kUtilInterval, looked_);
}

bool UtilMeter::ring_due(Instant now, bool sample) const {
  if (!begun_ || now < ring_looked_) return true;
  const Duration since = now - ring_looked_;
  if (!has_ring_) return sample && since >= kRingLook;
  return since >= (sample ? kShortestRing : kDryLook);
}

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
  std::optional<double> counted;
  if (energy_ && counter_ != Counter::of_module) counted = taking_.watts(*energy_, energy_at_);
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
  // The counter's mean of so short a time is as new as a moment's value.
  if (moment_)
    out.newest.add(*moment_);
  else if (counted && !no_time && now - since_take_.since <= kMomentIsOf)
    out.newest.add(counted.value_or(0));  // the compiler cannot see that it is there
  since_take_ = {.since = now};
  return out;
}

Duration PowerMeter::look_within() const {
  if (!moment_ && !energy_) return kNoLook;
  if (counter_ == Counter::ours && energy_) return kNoLook;
  return uneven(kPowerInterval, looked_);
}

}  // namespace lull
