#include "rule/timeline.h"

#include <algorithm>
#include <chrono>

namespace lull {
namespace {

// Unsigned, so that no distance overflows.
std::uint64_t unsigned_nanoseconds(Instant at) { return static_cast<std::uint64_t>(at.time_since_epoch().count()); }

}  // namespace

Duration longest_gap(Duration interval) {
  if (interval > Duration::max() / 3) return Duration::max();
  return std::max<Duration>(3 * interval, std::chrono::seconds(1));
}

Timeline::Timeline(Duration max_gap)
    : max_gap_(static_cast<std::uint64_t>(std::max(Duration::zero(), max_gap).count())) {}

Result<bool> Timeline::look(std::span<const Instant> at) const {
  if (at.empty()) return false;
  const Instant before = last_ ? *last_ : at.front();
  // A step backwards sets the top bit of `step`, a gap that of `max_gap - step`: the
  // common case, neither, is one pass without a branch.
  std::uint64_t step = unsigned_nanoseconds(at.front()) - unsigned_nanoseconds(before);
  std::uint64_t over = step | (max_gap_ - step);
  for (std::size_t i = 1; i < at.size(); ++i) {
    step = unsigned_nanoseconds(at[i]) - unsigned_nanoseconds(at[i - 1]);
    over |= step | (max_gap_ - step);
  }
  if (over >> 63 == 0) return false;
  if (at.front() < before || !std::is_sorted(at.begin(), at.end())) return fail("time goes backwards");
  return true;
}

void Timeline::advance(std::span<const Instant> at, bool any_gap, Mask& gaps) {
  std::fill_n(gaps.begin(), words_for(at.size()), Word{0});
  if (any_gap) {
    Instant previous = last_ ? *last_ : at.front();
    for (std::size_t i = 0; i < at.size(); previous = at[i], ++i)
      if (unsigned_nanoseconds(at[i]) - unsigned_nanoseconds(previous) > max_gap_)
        gaps[i / kWordSamples] |= Word{1} << (i % kWordSamples);
  }
  if (!at.empty()) last_ = at.back();
}

}  // namespace lull
