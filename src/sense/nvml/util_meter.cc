#include "sense/nvml/util_meter.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kRingLook = 5s;        // half of what a ring holds
constexpr Duration kMomentLook = 200ms;   // NVML promises that a moment is of the last 1/6 s at least
constexpr Duration kDryLook = 1s;         // how often a ring that is not relied on is asked again
constexpr Duration kLongestLag = 1500ms;  // the driver promises at least one sample a second
constexpr Duration kRingHolds = 10s;
constexpr Duration kFinest = 20ms;         // of the moments that are kept apart
constexpr Duration kShortestRing = 100ms;  // no ring records more often

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

// Good enough to fall out of step with anything: the bits of the clock, mixed (splitmix64).
Duration uneven(Duration most, Instant last) {
  auto x = static_cast<std::uint64_t>(last.time_since_epoch().count()) + 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return most - most / 3 * static_cast<Duration::rep>((x ^ (x >> 31)) % 1024) / 1024;
}

void UtilMeter::Sum::add(Instant from, Instant to, double percent) {
  const double length = lull::seconds(to - from);
  value += percent * length;
  seconds += length;
}

void UtilMeter::begin(Instant now) {
  begun_ = true;
  taken_ = false;
  looked_ = moment_at_ = ring_looked_ = taken_from_ = settled_ = ring_settled_ = now;
  ring_ = moments_ = {};
  looks_ = 0;
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
      settle(now);
      ring_looked_ = now;
      break;
    case RingLook::State::read:
      has_ring_ = true;
      judge_ring(now, ring);
      add_ring(now, ring);
      settle(now - lag_);
      ring_looked_ = now;
      break;
  }
}

// Whoever samples a thousand times a second gets no thousand of them: short ones are put together.
void UtilMeter::remember(const Moment& moment) {
  if (moment.from >= moment.to) return;
  if (!pending_.empty() && pending_.back().to == moment.from && pending_.back().from >= settled_ &&
      moment.to - pending_.back().from <= kFinest) {
    Moment& last = pending_.back();
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
  const bool whole = now - newest <= lag_ && seconds(covered) >= kCoveredEnough * seconds(newest - since);
  if (steady_ && !whole) fickle_ = true;
  steady_ = whole && !fickle_;
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
  for (const Moment& moment : pending_) {
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
  for (const Moment& moment : pending_) {
    const Instant from = std::max(moment.from, settled_);
    if (from < moment.to) sum.add(from, moment.to, moment.percent);
  }
  double open = seconds(now - settled_) - (sum.seconds - before_tail);
  if (ring_settled_ != settled_ || now - settled_ > lag_) open = 0;  // that is not the ring's to account for
  const double wanted = seconds(now - taken_from_) - std::max(open, 0.0);
  const bool no_time = first || now <= taken_from_;
  if (!no_time) out.coverage = wanted > 0 ? std::min(1.0, sum.seconds / wanted) : 0;
  if (no_time && moment_) {
    out = {.mean = *moment_, .coverage = 0, .basis = Basis::instant, .absence = Absence::none};
  } else if (!no_time && sum.seconds > 0 && out.coverage >= kCoveredEnough) {
    out.mean = std::clamp(sum.value / sum.seconds, 0.0, 100.0);
    out.basis = ring_.seconds * 2 >= sum.seconds ? Basis::mean : looks_ > 1 ? Basis::moments : Basis::instant;
    out.absence = Absence::none;
  }
  taken_from_ = settled_;
  ring_ = moments_ = {};
  looks_ = 0;
  return out;
}

Duration UtilMeter::look_within() const {
  if (steady_) return kRingLook;
  if (!moment_) return has_ring_ ? kDryLook : kNoLook;  // without both, util is not to be had here
  return uneven(kMomentLook, looked_);
}

bool UtilMeter::ring_due(Instant now, bool sample) const {
  if (!begun_ || now < ring_looked_) return true;
  const Duration since = now - ring_looked_;
  if (!has_ring_) return sample && since >= kRingLook;
  return since >= (sample ? kShortestRing : kDryLook);
}

}  // namespace lull
