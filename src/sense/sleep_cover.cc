#include "sense/sleep_cover.h"

#include <algorithm>
#include <utility>

#include "sense/nvml/meters.h"

namespace lull {

void not_covered(Answer& answer) {
  const auto forget = [](Reading& reading) {
    reading.util_basis = Basis::unknown;
    reading.util_coverage = 0;
    for (const Metric metric : {Metric::util, Metric::mem_util, Metric::pcie, Metric::sm, Metric::tensor, Metric::dram})
      if (reading.why_missing(metric) == Absence::none) reading.miss(metric, Absence::not_covered);
    if (reading.power_basis == Basis::instant) {
      reading.miss(Metric::power, Absence::not_covered);
      reading.power_basis = Basis::unknown;
    }
    if (reading.shares_absence == Absence::none) reading.shares_absence = Absence::not_covered;
  };
  forget(answer.gpu);
  std::ranges::for_each(answer.parts, forget);
}

void forget_moments(Reading& reading) {
  if (reading.asleep) return;
  for (const auto& [metric, basis] :
       {std::pair{Metric::util, &reading.util_basis}, std::pair{Metric::power, &reading.power_basis}}) {
    if (reading.why_missing(metric) != Absence::none) continue;
    reading.miss(metric, Absence::not_covered);
    *basis = Basis::unknown;
  }
  for (const Metric metric : kCounterMetrics)
    if (reading.why_missing(metric) == Absence::none) reading.miss(metric, Absence::not_covered);
}

void SleepCover::apply(Answer& answer) {
  const bool sleeps = answer.gpu.asleep;
  const std::int64_t awake = answer.gpu.awake_ms;
  const std::int64_t before = std::exchange(awake_ms_, awake);
  const std::optional<bool> slept_before = std::exchange(slept_, sleeps);
  const bool may_have_worked =
      sleeps ? slept_before == false || (before >= 0 && awake >= 0 && before != awake)
             : slept_before == true && answer.gpu.util_coverage < kCoveredEnough;  // a moment stands for no time before
  if (may_have_worked) not_covered(answer);
}

}  // namespace lull
