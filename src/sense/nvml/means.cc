#include "sense/nvml/means.h"

#include "gpu/metric.h"

namespace lull {
namespace {

constexpr Duration kShortest = std::chrono::milliseconds(100);  // below, the counter's own steps are what one sees

}  // namespace

bool EnergyMeter::comparable(std::uint64_t millijoules, Instant now) const {
  return known_ && millijoules >= millijoules_ && now > at_;
}

double EnergyMeter::since(std::uint64_t millijoules, Instant now) const {
  const double seconds = std::chrono::duration<double>(now - at_).count();
  return static_cast<double>(millijoules - millijoules_) / 1000 / seconds;
}

bool EnergyMeter::has_answer(std::uint64_t millijoules, Instant now) const {
  return comparable(millijoules, now) && now - at_ >= kShortest && millijoules != millijoules_ &&
         plausible(Metric::power, since(millijoules, now));
}

std::optional<double> EnergyMeter::watts(std::uint64_t millijoules, Instant now) {
  if (comparable(millijoules, now) && (now - at_ < kShortest || millijoules == millijoules_))
    return std::nullopt;  // keep looking
  const bool answer = has_answer(millijoules, now);
  const double mean = answer ? since(millijoules, now) : 0;
  known_ = true;
  millijoules_ = millijoules;
  at_ = now;
  return answer ? std::optional(mean) : std::nullopt;
}

}  // namespace lull
