#include "sense/source.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <span>
#include <utility>

#include "base/fd.h"
#include "base/text.h"
#include "sense/nvml/meters.h"

namespace lull {

void say_asleep(const Needs& needs, Reading& reading) {
  reading = Reading();
  reading.asleep = true;
  const auto miss = [&](bool asked, std::span<const Metric> metrics) {
    for (const Metric metric : metrics)
      if (asked) reading.miss(metric, Absence::asleep);
  };
  miss(needs.memory, kMemoryMetrics);
  miss(needs.power, kPowerMetrics);
  miss(needs.details, kDetailMetrics);
  miss(needs.processes, std::array{Metric::procs});
  for (const Metric metric : {Metric::util, Metric::mem_util}) reading.set(metric, 0);
  if (needs.pcie) reading.set(Metric::pcie, 0);
  for (const Metric metric : kCounterMetrics)
    if (needs.counters) reading.set(metric, 0);
  if (needs.shares) {
    reading.shares_absence = Absence::none;
    reading.unlisted_util = 0;
  }
  reading.util_basis = Basis::mean;
  reading.util_coverage = 1;
}

void say_unsupported(const Needs& needs, Reading& reading) {
  if (needs.pcie) reading.miss(Metric::pcie, Absence::not_supported);
  for (const Metric metric : kCounterMetrics)
    if (needs.counters) reading.miss(metric, Absence::not_supported);
  if (needs.shares) reading.shares_absence = Absence::not_supported;
}

std::int64_t awake_time(const std::string& power_folder) {
  const auto text = read_file(AT_FDCWD, power_folder + "/runtime_active_time", 64);
  const auto milliseconds = text ? to_unsigned(trim(*text)) : std::nullopt;
  return milliseconds ? static_cast<std::int64_t>(*milliseconds & 0x7FFF'FFFF'FFFF'FFFF) : -1;
}

bool nvml_may_be_there(const std::string& library, const Root& root) {
  if (!library.empty() || root.driver.empty()) return true;
  if (!environment_variable("LULL_NVML").value_or("").empty()) return true;
  for (const std::string& path :
       {root.driver + "/version", root.dev + "/dxg", root.dev + "/nvhost-ctrl", root.dev + "/nvmap"})
    if (::access(path.c_str(), F_OK) == 0 || errno == EACCES) return true;  // without permission, the library tells
  return false;
}

// ---- what an answer covers

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
  const std::int64_t known = awake_ms_;
  if (awake >= 0) awake_ms_ = awake;
  const std::optional<bool> slept_before = std::exchange(slept_, sleeps);
  // A count that was told and cannot be read now may be another by now.
  const bool may_have_worked =
      sleeps ? slept_before == false || (known >= 0 && awake != known)
             : slept_before == true && answer.gpu.util_coverage < kCoveredEnough;  // a moment stands for no time before
  if (may_have_worked) not_covered(answer);
}

}  // namespace lull
