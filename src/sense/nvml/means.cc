#include "sense/nvml/means.h"

#include <algorithm>
#include <cmath>
#include <ranges>

namespace lull {
namespace {

constexpr unsigned long long kLongest = 1'000'000;              // µs; the driver promises at least one sample a second
constexpr Duration kShortest = std::chrono::milliseconds(100);  // below, the counter's own steps are what one sees
constexpr double kMostWatts = 10'000;                           // no card draws that: the counter leapt

double number(const nvml::Sample& sample, unsigned value_type) {
  switch (value_type) {
    case nvml::kValueDouble: return sample.value.d;
    case nvml::kValueUint: return sample.value.ui;
    case nvml::kValueUlong: return static_cast<double>(sample.value.ul);
    case nvml::kValueUlonglong: return static_cast<double>(sample.value.ull);
    case nvml::kValueSlonglong: return static_cast<double>(sample.value.sll);
    default: return std::nan("");
  }
}

bool usable(double value) { return value >= 0 && value <= 100; }

// The usual distance of two samples: the median, so that a gap does not count. 0: there are no two.
unsigned long long usual_distance(std::span<const nvml::Sample> samples, std::vector<unsigned long long>& scratch) {
  scratch.clear();
  for (std::size_t i = 1; i < samples.size(); ++i)
    if (samples[i].timestamp > samples[i - 1].timestamp)
      scratch.push_back(samples[i].timestamp - samples[i - 1].timestamp);
  if (scratch.empty()) return 0;
  const auto middle = scratch.begin() + static_cast<std::ptrdiff_t>(scratch.size() / 2);
  std::nth_element(scratch.begin(), middle, scratch.end());
  return *middle;
}

// More than this between two samples is a gap.
unsigned long long longest_distance(unsigned long long usual) {
  return usual == 0 ? kLongest : std::min(2 * usual, kLongest);
}

}  // namespace

std::optional<BufferMean> mean_of_buffer(std::span<const nvml::Sample> samples, unsigned value_type,
                                         unsigned long long last_seen_us, std::vector<unsigned long long>& scratch) {
  const unsigned long long usual = usual_distance(samples, scratch);
  const unsigned long long most = longest_distance(usual);
  BufferMean result;
  unsigned long long before = last_seen_us;
  double sum = 0;
  double weights = 0;
  for (const nvml::Sample& sample : samples) {
    if (sample.timestamp <= before) continue;  // seen already, twice the same time, or out of order
    const unsigned long long distance = before == 0 ? (usual == 0 ? kLongest : usual) : sample.timestamp - before;
    before = sample.timestamp;
    const double value = number(sample, value_type);
    if (!usable(value)) continue;
    const auto weight = static_cast<double>(std::min(distance, most));
    sum += value * weight;
    weights += weight;
  }
  if (weights <= 0) return std::nullopt;
  result.mean = sum / weights;
  result.covered = Duration(static_cast<Duration::rep>(weights * 1000));
  result.newest_us = before;
  return result;
}

std::optional<Duration> idle_tail(std::span<const nvml::Sample> samples, unsigned value_type, unsigned long long now_us,
                                  std::vector<unsigned long long>& scratch) {
  if (samples.empty()) return std::nullopt;
  const unsigned long long newest = samples.back().timestamp;
  if (newest > now_us + kLongest || newest + 2 * kLongest < now_us) return std::nullopt;
  const unsigned long long most = longest_distance(usual_distance(samples, scratch));
  std::optional<unsigned long long> since;
  unsigned long long after = newest;
  for (const nvml::Sample& sample : std::views::reverse(samples)) {
    const double value = number(sample, value_type);
    if (!usable(value) || value >= kIdleBelow || sample.timestamp > after || after - sample.timestamp > most) break;
    since = after = sample.timestamp;
  }
  if (!since) return std::nullopt;
  return std::chrono::microseconds(newest - *since);
}

bool EnergyMeter::too_soon(Instant roughly) const { return known_ && roughly >= at_ && roughly - at_ < kShortest / 2; }

std::optional<double> EnergyMeter::watts(std::uint64_t millijoules, Instant now) {
  const bool usable_baseline = known_ && millijoules >= millijoules_ && now > at_;
  if (usable_baseline && (now - at_ < kShortest || millijoules == millijoules_)) return std::nullopt;  // keep looking
  const double seconds = std::chrono::duration<double>(now - at_).count();
  const double watts = static_cast<double>(millijoules - millijoules_) / 1000 / seconds;
  known_ = true;
  millijoules_ = millijoules;
  at_ = now;
  return usable_baseline && watts <= kMostWatts ? std::optional(watts) : std::nullopt;
}

}  // namespace lull
