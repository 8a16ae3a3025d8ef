#include "sense/nvml/ring.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ranges>

namespace lull {
namespace {

using std::chrono::microseconds;

constexpr std::int64_t kNear = 2'000'000;          // µs; the driver promises at least one sample a second
constexpr std::int64_t kKept = 15'000'000;         // µs; a dry buffer holds nothing older, else the clock was set
constexpr std::int64_t kLongest = 1'000'000;       // µs between two samples; more is a gap
constexpr std::int64_t kShortest = 1'000'000 / 6;  // µs; of a sample that has no neighbour to measure by
constexpr std::uint64_t kLatest = std::uint64_t{1} << 62;

std::int64_t micros(Duration since) { return std::chrono::duration_cast<microseconds>(since).count(); }

}  // namespace

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
  const std::int64_t usual = usual_ > Duration::zero() ? micros(usual_) : kShortest;
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

}  // namespace lull
