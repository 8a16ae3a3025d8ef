#pragma once
// From a counter of energy to the mean power between two readings of it. Pure: what
// the driver said goes in, with the time at which it did.

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace lull {

// Below this a GPU is called idle where nobody gave a rule.
inline constexpr double kIdleBelow = 5;  // % of util

// Mean power from a counter of energy.
class EnergyMeter {
 public:
  // Watts since the last call that had an answer; nothing where there is none to be had: the first reading,
  // too short a time, a counter that stood still (it moves every 100 ms or so), ran backwards or leapt.
  std::optional<double> watts(std::uint64_t millijoules, Instant now);
  // Whether it would have an answer.
  bool has_answer(std::uint64_t millijoules, Instant now) const;
  void forget() { known_ = false; }

 private:
  bool comparable(std::uint64_t millijoules, Instant now) const;
  double since(std::uint64_t millijoules, Instant now) const;

  bool known_ = false;
  std::uint64_t millijoules_ = 0;
  Instant at_{};
};

}  // namespace lull
