#pragma once
// The median of the intervals between a GPU's samples, in bounded memory, exactly.
// The first reading sorts intervals into buckets of rising width, each with its
// smallest and largest, and with its values while they are few. That settles the
// median of regular sampling (its times are a few milliseconds apart), and always
// brackets it; another reading looks more closely at the bucket in question, until
// the median is known to the nanosecond.
//
// A gap is an interval longer than longest_gap() of the median, as live of the interval
// that was asked for. Where the interval changes for long within a file (1 s, then 60 s), each part has a gap of its
// own (trace::Paced). Replay guesses the median from the first block and judges on; at the end `same_gaps` tells
// whether the true median would have found the same gaps, which makes the guess as good as the truth.

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "trace/reader.h"

namespace lull::replay {

// What is known of a median: it lies between these two. Halves are kept: twice the value.
struct Bracket {
  std::int64_t low_twice = 0;
  std::int64_t high_twice = 0;
  bool exact() const { return low_twice == high_twice; }
};

class MedianFinder {
 public:
  // The first reading: any interval, none negative.
  MedianFinder() = default;

  void add(std::int64_t interval) {
    if (interval == last_) [[likely]] {
      ++run_;
      return;
    }
    commit();
    last_ = interval;
    run_ = 1;
  }

  std::uint64_t count() {
    commit();
    return count_;
  }
  // Nothing where there is no interval at all.
  std::optional<Bracket> median();
  // For the next reading of the same intervals, which settles more.
  MedianFinder closer();

 private:
  struct Bucket {
    std::uint64_t count = 0;
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    std::int64_t most = 0;
    std::vector<std::pair<std::int64_t, std::uint64_t>> values = {};  // each with how often, in their order
    std::int64_t at_rank(std::uint64_t rank) const;                   // of its values
  };
  struct Place {
    const Bucket* bucket;
    std::uint64_t before;  // intervals in the buckets before it
  };

  void commit();
  void keep_value(Bucket& bucket);
  std::size_t bucket_of(std::int64_t interval) const;
  Place place_of_rank(std::uint64_t rank) const;

  std::int64_t last_ = -1;
  std::uint64_t run_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t below_ = 0;                        // intervals before the first bucket, in a closer look
  std::int64_t from_ = 0;                          // the first value of interest
  static constexpr std::size_t kMostValues = 256;  // in all buckets; with more, none has any
  std::size_t values_ = 0;
  std::int64_t width_ = 0;                               // of a bucket, in a closer look; 0: buckets of rising width
  std::vector<std::pair<std::size_t, Bucket>> buckets_;  // those in use, in their order
};

// Longer than this is a gap.
std::int64_t gap_of(std::int64_t twice_median);

// The exact median of a few intervals at hand, twice its value; nothing if there are none.
std::optional<std::int64_t> median_twice(std::vector<std::int64_t> intervals);
// The gap that the first samples suggest; none where there is no interval.
std::int64_t guess_gap(std::span<const Instant> at);

// What is a gap where samples come in these intervals.
trace::Paced gaps_of(trace::Paced intervals);

// How much time lies in intervals of which length: an hour of samples a minute apart counts 60 times as much as a
// minute of samples a second apart, of which there are as many. In buckets of rising width.
class SampledTime {
 public:
  void add(std::int64_t interval) {
    if (interval == last_) [[likely]] {
      ++run_;
      return;
    }
    commit();
    last_ = interval;
    run_ = 1;
  }
  // Of another GPU; longer intervals than this are gaps.
  void add(SampledTime more, std::int64_t longest);
  // This share of the time lies in intervals of this length or less; 0 where there is no interval.
  Duration up_to(double share);

 private:
  struct Bucket {
    std::size_t place;
    std::int64_t time;
    std::int64_t count;
    std::int64_t mean() const { return time / count; }
  };
  void commit();
  void put(const Bucket& more);

  std::int64_t last_ = -1;
  std::int64_t run_ = 0;
  std::vector<Bucket> buckets_;  // those in use, in their order
};

// How far apart the samples of a recording are.
struct SamplingIntervals {
  Duration usual{};   // half of the time lies in intervals of this length or less
  Duration longer{};  // and nine tenths
};
SamplingIntervals intervals_of(SampledTime time);

// One GPU's intervals as they come: which are gaps, and how much was seen.
class Intervals {
 public:
  explicit Intervals(std::int64_t gap) : gap_(gap) {}

  void feed(std::span<const Instant> at);

  std::int64_t gap() const { return gap_; }
  void set_gap(std::int64_t gap) { gap_ = gap; }
  // The interval changed for long.
  bool changed() const { return paces_.size() > 1; }
  // The interval from the first sample on: the median, or what it changed to.
  trace::Paced paces(std::int64_t twice_median) const;
  Duration seen() const { return Duration(seen_); }
  Duration missed() const { return Duration(missed_); }  // in gaps
  MedianFinder& median() { return median_; }
  const SampledTime& sampled() const { return sampled_; }  // with gaps
  void look_closer(MedianFinder finder) { median_ = std::move(finder); }
  // Whether the true median, as far as it is known, would have found the same gaps as ours did.
  bool same_gaps(const Bracket& median) const {
    return !changed() && same_gaps(gap_of(median.low_twice), gap_of(median.high_twice));
  }
  bool same_gaps(std::int64_t least, std::int64_t most) const { return longest_ <= least && shortest_gap_ > most; }

 private:
  std::int64_t gap_;
  std::optional<std::int64_t> last_;
  std::int64_t seen_ = 0;
  std::int64_t missed_ = 0;
  std::int64_t longest_ = 0;  // that is not a gap
  std::int64_t shortest_gap_ = std::numeric_limits<std::int64_t>::max();
  MedianFinder median_;
  SampledTime sampled_;

  // Intervals that are much the same so many times in a row are a pace.
  static constexpr std::size_t kSustained = 8;
  struct Pace {
    std::int64_t from;  // the sample before its first interval
    std::int64_t interval;
  };
  void follow(std::int64_t before, std::int64_t interval);
  Pace run_{};  // the intervals that were much the same so far, and how many
  std::size_t run_length_ = 0;
  std::array<std::int64_t, kSustained> run_intervals_{};
  std::vector<Pace> paces_;
};

}  // namespace lull::replay
