#include "sense/source.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "base/fd.h"
#include "base/text.h"

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
    if (::access(path.c_str(), F_OK) == 0 || errno == EACCES) return true;  // whom it is closed to, the library tells
  return false;
}

}  // namespace lull
