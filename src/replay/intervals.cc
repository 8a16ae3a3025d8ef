#include "replay/intervals.h"

#include <algorithm>
#include <bit>

#include "rule/timeline.h"

namespace lull::replay {
namespace {

// Rising width: each doubling is cut into 32, so a bucket is 3 % wide at most.
constexpr int kFineBits = 5;
constexpr std::size_t kCloserBuckets = 4096;

std::size_t rising_bucket(std::int64_t interval) {
  const auto value = static_cast<std::uint64_t>(interval);
  if (value < 2U << kFineBits) return static_cast<std::size_t>(value);
  const int shift = static_cast<int>(std::bit_width(value)) - 1 - kFineBits;
  return (static_cast<std::size_t>(shift) << kFineBits) + static_cast<std::size_t>(value >> shift);
}

}  // namespace

std::size_t MedianFinder::bucket_of(std::int64_t interval) const {
  return width_ == 0 ? rising_bucket(interval) : static_cast<std::size_t>((interval - from_) / width_);
}

void MedianFinder::commit() {
  if (run_ == 0) return;
  count_ += run_;
  if (last_ < from_) {
    below_ += run_;
  } else if (const std::size_t at = bucket_of(last_); width_ == 0 || at < kCloserBuckets) {
    auto found = std::lower_bound(buckets_.begin(), buckets_.end(), at,
                                  [](const auto& one, std::size_t place) { return one.first < place; });
    if (found == buckets_.end() || found->first != at) found = buckets_.insert(found, {at, Bucket{}});
    Bucket& bucket = found->second;
    bucket.count += run_;
    bucket.least = std::min(bucket.least, last_);
    bucket.most = std::max(bucket.most, last_);
    keep_value(bucket);
  }
  run_ = 0;
  last_ = -1;
}

void MedianFinder::keep_value(Bucket& bucket) {
  if (values_ > kMostValues) return;
  auto found = std::ranges::lower_bound(bucket.values, last_, {}, &std::pair<std::int64_t, std::uint64_t>::first);
  if (found == bucket.values.end() || found->first != last_) {
    if (++values_ > kMostValues) {
      for (auto& [place, one] : buckets_) one.values = {};
      return;
    }
    found = bucket.values.insert(found, {last_, 0});
  }
  found->second += run_;
}

std::int64_t MedianFinder::Bucket::at_rank(std::uint64_t rank) const {
  std::uint64_t before = 0;
  for (const auto& [value, times] : values)
    if (rank < (before += times)) return value;
  return most;
}

MedianFinder::Place MedianFinder::place_of_rank(std::uint64_t rank) const {
  std::uint64_t before = below_;
  for (const auto& [place, bucket] : buckets_) {
    if (rank < before + bucket.count) return {&bucket, before};
    before += bucket.count;
  }
  return {nullptr, before};
}

std::optional<Bracket> MedianFinder::median() {
  commit();
  if (count_ == 0) return std::nullopt;
  const std::uint64_t lower = (count_ - 1) / 2;
  const std::uint64_t upper = count_ / 2;
  const Place a = place_of_rank(lower);
  const Place b = place_of_rank(upper);
  if (a.bucket == nullptr || b.bucket == nullptr) return std::nullopt;  // a closer look at other intervals
  // Neighbours in different buckets: the last of one and the first of the other.
  if (a.bucket != b.bucket) {
    const std::int64_t twice = a.bucket->most + b.bucket->least;
    return Bracket{twice, twice};
  }
  if (!a.bucket->values.empty()) {
    const std::int64_t twice = a.bucket->at_rank(lower - a.before) + a.bucket->at_rank(upper - a.before);
    return Bracket{twice, twice};
  }
  std::int64_t low = a.bucket->least;
  std::int64_t high = a.bucket->most;
  const std::uint64_t in = a.bucket->count;
  if (lower == upper && lower == a.before) high = low;           // the first of its bucket
  if (lower == upper && lower + 1 == a.before + in) low = high;  // the last of it
  if (in == 2 && lower != upper) return Bracket{low + high, low + high};
  return Bracket{2 * low, 2 * high};
}

MedianFinder MedianFinder::closer() {
  commit();
  MedianFinder next;
  const Place place = place_of_rank((count_ - 1) / 2);
  if (place.bucket == nullptr) return next;
  next.from_ = place.bucket->least;
  next.width_ = (place.bucket->most - place.bucket->least) / static_cast<std::int64_t>(kCloserBuckets) + 1;
  return next;
}

void SampledTime::commit() {
  if (run_ > 0) put({rising_bucket(last_), last_ * run_, run_});
  run_ = 0;
  last_ = -1;
}

void SampledTime::put(const Bucket& more) {
  auto found = std::ranges::lower_bound(buckets_, more.place, {}, &Bucket::place);
  if (found == buckets_.end() || found->place != more.place) found = buckets_.insert(found, {more.place, 0, 0});
  found->time += more.time;
  found->count += more.count;
}

void SampledTime::add(SampledTime more, std::int64_t longest) {
  more.commit();
  for (const Bucket& bucket : more.buckets_)
    if (bucket.mean() <= longest) put(bucket);
}

Duration SampledTime::up_to(double share) {
  commit();
  double all = 0;
  for (const Bucket& bucket : buckets_) all += static_cast<double>(bucket.time);
  double passed = 0;
  for (const Bucket& bucket : buckets_) {
    passed += static_cast<double>(bucket.time);
    if (passed >= share * all) return Duration(bucket.mean());
  }
  return {};
}

SamplingIntervals intervals_of(SampledTime time) { return {time.up_to(0.5), time.up_to(0.9)}; }

std::int64_t gap_of(std::int64_t twice_median) { return longest_gap(Duration(twice_median / 2)).count(); }

std::optional<std::int64_t> median_twice(std::vector<std::int64_t> intervals) {
  if (intervals.empty()) return std::nullopt;
  const std::size_t upper = intervals.size() / 2;
  const auto middle = intervals.begin() + static_cast<std::ptrdiff_t>(upper);
  std::nth_element(intervals.begin(), middle, intervals.end());
  if (intervals.size() % 2 == 1) return 2 * *middle;
  return *middle + *std::max_element(intervals.begin(), middle);
}

std::int64_t guess_gap(std::span<const Instant> at) {
  std::vector<std::int64_t> intervals;
  for (std::size_t i = 1; i < at.size(); ++i) intervals.push_back((at[i] - at[i - 1]).count());
  const auto median = median_twice(std::move(intervals));
  return median ? gap_of(*median) : std::numeric_limits<std::int64_t>::max();
}

void Intervals::feed(std::span<const Instant> at) {
  for (const Instant instant : at) {
    const std::int64_t now = instant.time_since_epoch().count();
    if (last_) {
      const std::int64_t interval = now - *last_;
      median_.add(interval);
      sampled_.add(interval);
      follow(*last_, interval);
      if (interval <= gap_) {
        seen_ += interval;
        longest_ = std::max(longest_, interval);
      } else {
        missed_ += interval;
        shortest_gap_ = std::min(shortest_gap_, interval);
      }
    }
    last_ = now;
  }
}

void Intervals::follow(std::int64_t before, std::int64_t interval) {
  constexpr std::size_t kMostPaces = 4096;  // what changes more often has none
  if (run_length_ == 0 || interval > 2 * run_.interval || 2 * interval < run_.interval) {
    run_ = {before, interval};
    run_intervals_[0] = interval;
    run_length_ = 1;
    return;
  }
  if (run_length_ == kSustained) return;
  run_intervals_[run_length_] = interval;
  if (++run_length_ == kSustained) {
    // The first one leads from the old pace to the new, and may be anything between the two.
    const auto middle = run_intervals_.begin() + kSustained / 2;
    std::nth_element(run_intervals_.begin(), middle, run_intervals_.end());
    run_.interval = *middle;
    const bool other =
        paces_.empty() || run_.interval > 3 * paces_.back().interval || 3 * run_.interval < paces_.back().interval;
    if (other && paces_.size() < kMostPaces) paces_.push_back(run_);
  }
}

trace::Paced Intervals::paces(std::int64_t twice_median) const {
  trace::Paced paces{twice_median / 2};
  if (!changed()) return paces;
  paces.first = paces_.front().interval;
  for (std::size_t i = 1; i < paces_.size(); ++i)
    paces.changes.push_back({Instant(Duration(paces_[i].from)), paces_[i].interval});
  return paces;
}

trace::Paced gaps_of(trace::Paced intervals) {
  intervals.first = gap_of(2 * intervals.first);
  for (trace::Paced::Change& change : intervals.changes) change.value = gap_of(2 * change.value);
  return intervals;
}

}  // namespace lull::replay
