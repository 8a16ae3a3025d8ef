#pragma once
// From counters and buffers of the driver to a mean since the previous sample.
// Pure: what the driver said goes in, with the time at which it did. What they
// must never do is take time that nobody measured for idleness: a buffer that
// ran over or ran dry makes the mean cover less, not lower.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "nvml/abi.h"

namespace lull {

struct BufferMean {
  double mean = 0;
  Duration covered{};                // the time that the mean is of
  unsigned long long newest_us = 0;  // timestamp of the last sample
};

// Samples after `last_seen_us` (0: all), each weighted by the time since the one before, but by no more
// than twice the usual distance. Nothing where no sample is usable: out of order, or not a percentage.
// `scratch` is working space, kept by the caller so that sampling does not allocate.
std::optional<BufferMean> mean_of_buffer(std::span<const nvml::Sample> samples, unsigned value_type,
                                         unsigned long long last_seen_us, std::vector<unsigned long long>& scratch);

// Below this a GPU is called idle where nobody gave a rule.
inline constexpr double kIdleBelow = 5;  // % of util

// For how long the buffer shows less than that, without a break up to now (µs since boot, as the samples have it).
// Nothing where its end is not idle or not of now: the driver records nothing while nobody holds the card.
std::optional<Duration> idle_tail(std::span<const nvml::Sample> samples, unsigned value_type, unsigned long long now_us,
                                  std::vector<unsigned long long>& scratch);

// Mean power from a counter of energy.
class EnergyMeter {
 public:
  // Watts since the last call that had an answer; nothing where there is none to be had: the first reading,
  // too short a time, a counter that stood still (it moves every 100 ms or so), ran backwards or leapt.
  std::optional<double> watts(std::uint64_t millijoules, Instant now);
  // Is it too soon for an answer anyway? Spares those who sample often the exact time.
  bool too_soon(Instant roughly) const;
  void forget() { known_ = false; }

 private:
  bool known_ = false;
  std::uint64_t millijoules_ = 0;
  Instant at_{};
};

}  // namespace lull
