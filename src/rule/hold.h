#pragma once
// "… for 20m", "… for 5 samples": has a condition been yes, without a break, for so
// long? A sample that is not yes, and a gap between two samples, break the streak.
//
//   yes      the condition is yes, and has been since a sample at least `time` ago
//            (or for at least `samples` samples, this one included)
//   no       the condition is no; or it is yes, but was seen to turn from no to yes
//            more recently than that
//   unknown  the condition is unknown; or it is yes, but what lay before the streak
//            was not seen (the beginning, a gap, an unknown), so it may have been longer
//
// So neither a streak nor its absence is ever concluded from what was not seen.

#include <cstdint>
#include <span>

#include "base/clock.h"
#include "rule/rule.h"
#include "rule/truth.h"

namespace lull {

class Hold {
 public:
  explicit Hold(Span span) : span_(span) {}

  // Turns the answers to the condition into the answers to "held", in place.
  // `gaps`: bit set where a gap lies before the sample.
  void apply(std::span<const Instant> at, const Mask& gaps, Answers& answers);
  void reset() { running_ = previous_no_ = false; }

  bool running() const { return running_; }
  std::int64_t since() const { return since_; }
  std::uint64_t samples() const { return samples_; }

 private:
  std::size_t first_held(const Instant* at, std::size_t from, std::size_t to) const;

  Span span_;
  bool running_ = false;
  bool grounded_ = false;     // the sample before the streak was a definite no
  bool previous_no_ = false;  // the newest sample was one
  std::int64_t since_ = 0;    // ns of the streak's first sample
  std::uint64_t samples_ = 0;
};

}  // namespace lull
