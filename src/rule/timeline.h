#pragma once
// A Timeline follows the times of a series: it refuses time that goes backwards, and
// marks the gaps, that is, where more time lies between two samples than may. Two
// samples at the same time are fine.

#include <optional>
#include <span>

#include "base/clock.h"
#include "base/result.h"
#include "rule/truth.h"

namespace lull {

// Longer than this between two samples is a gap that breaks a streak, live and in replay: three
// intervals, but not less than a loaded machine needs to get round to us.
Duration longest_gap(Duration interval);

class Timeline {
 public:
  Timeline() = default;
  explicit Timeline(Duration max_gap);

  // Whether any gap lies in or before these samples; an error if time goes backwards.
  Result<bool> look(std::span<const Instant> at) const;
  // Goes on by these samples, which look() has found in order. The mask gets a bit for
  // each sample that a gap lies before; the words for these samples are written.
  void advance(std::span<const Instant> at, bool any_gap, Mask& gaps);

  std::optional<Instant> last() const { return last_; }
  void reset() { last_.reset(); }

 private:
  std::uint64_t max_gap_ = 0;
  std::optional<Instant> last_;
};

}  // namespace lull
