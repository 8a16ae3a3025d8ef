#pragma once
// The signals that lull knows, in one table: what a rule may name, what a trace
// has columns for, what JSON calls them. To add a signal, add it to the enum and
// to the table; every reader and writer goes by the table.

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

namespace lull {

enum class Metric : std::uint8_t {
  util,
  mem_util,
  mem_used,
  mem_free,
  mem_total,
  power,
  power_limit,
  temp,
  clock,
  pstate,
  fan,
  pcie,
  procs,
  openers,
  cpu,
  io,
  quiet,
  user_idle,
};
inline constexpr std::size_t kMetrics = 18;

enum class Unit : std::uint8_t { percent, bytes, watts, celsius, megahertz, bytes_per_second, count, seconds, none };
enum class Of : std::uint8_t { gpu, job, machine };

struct MetricInfo {
  Metric metric;
  std::string_view name;   // in a rule: util
  std::string_view field;  // in JSON and CSV, with its unit: util_percent
  Unit unit;
  Of of;
  std::optional<Metric> whole;  // what a % of it is a share of: power -> power_limit
  std::string_view meaning;
};

inline constexpr std::array<MetricInfo, kMetrics> kMetricTable = {{
    {Metric::util,
     "util",
     "util_percent",
     Unit::percent,
     Of::gpu,
     {},
     "share of time a kernel ran since the previous sample"},
    {Metric::mem_util, "mem_util", "mem_util_percent", Unit::percent, Of::gpu, {}, "memory controller activity"},
    {Metric::mem_used, "mem_used", "mem_used_bytes", Unit::bytes, Of::gpu, Metric::mem_total, "memory in use"},
    {Metric::mem_free, "mem_free", "mem_free_bytes", Unit::bytes, Of::gpu, Metric::mem_total, "memory free"},
    {Metric::mem_total, "mem_total", "mem_total_bytes", Unit::bytes, Of::gpu, {}, "memory in all"},
    {Metric::power, "power", "power_watts", Unit::watts, Of::gpu, Metric::power_limit,
     "mean power since the previous sample"},
    {Metric::power_limit, "power_limit", "power_limit_watts", Unit::watts, Of::gpu, {}, "enforced power limit"},
    {Metric::temp, "temp", "temp_celsius", Unit::celsius, Of::gpu, {}, "temperature of the chip"},
    {Metric::clock, "clock", "clock_mhz", Unit::megahertz, Of::gpu, {}, "clock of the multiprocessors"},
    {Metric::pstate, "pstate", "pstate", Unit::none, Of::gpu, {}, "performance state, 0 is the fastest"},
    {Metric::fan, "fan", "fan_percent", Unit::percent, Of::gpu, {}, "fan speed"},
    {Metric::pcie,
     "pcie",
     "pcie_bytes_per_second",
     Unit::bytes_per_second,
     Of::gpu,
     {},
     "PCIe traffic, both directions"},
    {Metric::procs, "procs", "procs", Unit::count, Of::gpu, {}, "processes with a compute context"},
    {Metric::openers, "openers", "openers", Unit::count, Of::gpu, {}, "processes that hold the device file open"},
    {Metric::cpu, "cpu", "cpu_percent", Unit::percent, Of::job, {}, "CPU of the job's process tree"},
    {Metric::io,
     "io",
     "io_bytes_per_second",
     Unit::bytes_per_second,
     Of::job,
     {},
     "bytes the job's tree reads and writes"},
    {Metric::quiet, "quiet", "quiet_seconds", Unit::seconds, Of::job, {}, "time since the job last wrote anything"},
    {Metric::user_idle,
     "user_idle",
     "user_idle_seconds",
     Unit::seconds,
     Of::machine,
     {},
     "time since the last key on a terminal of a user who counts"},
}};

constexpr std::size_t index_of(Metric metric) { return static_cast<std::size_t>(metric); }
constexpr const MetricInfo& info(Metric metric) { return kMetricTable[index_of(metric)]; }
std::optional<Metric> metric_by_name(std::string_view name);
std::optional<Metric> metric_by_field(std::string_view field);

// The table is indexed by the enum: a row in the wrong place does not compile.
static_assert([] {
  for (std::size_t i = 0; i < kMetrics; ++i)
    if (index_of(kMetricTable[i].metric) != i) return false;
  return true;
}());

// A value that the device did not report. It compares neither below nor above
// any threshold, so an unknown never looks idle and never looks busy.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
inline constexpr float kUnknownSample = std::numeric_limits<float>::quiet_NaN();

}  // namespace lull
