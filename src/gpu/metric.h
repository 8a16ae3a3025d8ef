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
  beat,
  user_idle,
};
inline constexpr std::size_t kMetrics = 19;

enum class Unit : std::uint8_t { percent, bytes, watts, celsius, megahertz, bytes_per_second, count, seconds, none };
enum class Of : std::uint8_t { gpu, job, machine };

// What a metric can be on any machine there is, with room to spare. A driver that says more (or less) is
// wrong: real ones answer "unknown" with all bits set, and garbage when they break. See plausible().
struct Range {
  double lowest;
  double highest;
};

struct MetricInfo {
  Metric metric;
  std::string_view name;   // in a rule: util
  std::string_view field;  // in JSON and CSV, with its unit: util_percent
  Unit unit;
  Of of;
  std::optional<Metric> whole;  // what a % of it is a share of: power -> power_limit
  std::string_view meaning;
  Range range;
};

inline constexpr Range kPercentRange = {0, 100};
inline constexpr double kMostBytes = 1125899906842624;  // 1 PiB: a thousand times what a card has
inline constexpr double kMostWatts = 10'000;            // five times what a card draws
inline constexpr double kMostProcesses = 4'194'304;     // PID_MAX_LIMIT
inline constexpr double kMostSeconds = 1e11;            // 3000 years: a terminal's time stamp may be 0

inline constexpr std::array<MetricInfo, kMetrics> kMetricTable = {{
    {Metric::util,
     "util",
     "util_percent",
     Unit::percent,
     Of::gpu,
     {},
     "share of time a kernel ran since the previous sample",
     kPercentRange},
    {Metric::mem_util,
     "mem_util",
     "mem_util_percent",
     Unit::percent,
     Of::gpu,
     {},
     "memory controller activity",
     kPercentRange},
    {Metric::mem_used,
     "mem_used",
     "mem_used_bytes",
     Unit::bytes,
     Of::gpu,
     Metric::mem_total,
     "memory in use",
     {0, kMostBytes}},
    {Metric::mem_free,
     "mem_free",
     "mem_free_bytes",
     Unit::bytes,
     Of::gpu,
     Metric::mem_total,
     "memory free",
     {0, kMostBytes}},
    {Metric::mem_total, "mem_total", "mem_total_bytes", Unit::bytes, Of::gpu, {}, "memory in all", {1, kMostBytes}},
    {Metric::power,
     "power",
     "power_watts",
     Unit::watts,
     Of::gpu,
     Metric::power_limit,
     "mean power since the previous sample",
     {0, kMostWatts}},
    {Metric::power_limit,
     "power_limit",
     "power_limit_watts",
     Unit::watts,
     Of::gpu,
     {},
     "enforced power limit",
     {1, kMostWatts}},
    {Metric::temp, "temp", "temp_celsius", Unit::celsius, Of::gpu, {}, "temperature of the chip", {-60, 250}},
    {Metric::clock, "clock", "clock_mhz", Unit::megahertz, Of::gpu, {}, "clock of the multiprocessors", {0, 20'000}},
    {Metric::pstate, "pstate", "pstate", Unit::none, Of::gpu, {}, "performance state, 0 is the fastest", {0, 15}},
    {Metric::fan, "fan", "fan_percent", Unit::percent, Of::gpu, {}, "fan speed", {0, 250}},
    {Metric::pcie,
     "pcie",
     "pcie_bytes_per_second",
     Unit::bytes_per_second,
     Of::gpu,
     {},
     "PCIe traffic, both directions",
     {0, 1e13}},
    {Metric::procs,
     "procs",
     "procs",
     Unit::count,
     Of::gpu,
     {},
     "processes with a compute context",
     {0, kMostProcesses}},
    {Metric::openers,
     "openers",
     "openers",
     Unit::count,
     Of::gpu,
     {},
     "processes that hold the device file open",
     {0, kMostProcesses}},
    {Metric::cpu, "cpu", "cpu_percent", Unit::percent, Of::job, {}, "CPU of the job's process tree", {0, 1e7}},
    {Metric::io,
     "io",
     "io_bytes_per_second",
     Unit::bytes_per_second,
     Of::job,
     {},
     "bytes the job's tree reads and writes",
     {0, 1e15}},
    {Metric::quiet,
     "quiet",
     "quiet_seconds",
     Unit::seconds,
     Of::job,
     {},
     "time since the job last wrote anything",
     {0, kMostSeconds}},
    {Metric::beat,
     "beat",
     "beat_seconds",
     Unit::seconds,
     Of::job,
     {},
     "time since the program last called beat(), in Python",
     {0, kMostSeconds}},
    {Metric::user_idle,
     "user_idle",
     "user_idle_seconds",
     Unit::seconds,
     Of::machine,
     {},
     "time since the last key on a terminal of a user who counts",
     {0, kMostSeconds}},
}};

constexpr std::size_t index_of(Metric metric) { return static_cast<std::size_t>(metric); }
constexpr const MetricInfo& info(Metric metric) { return kMetricTable[index_of(metric)]; }
// A number that the metric can be. Everything else is unknown, as NaN is.
constexpr bool plausible(Metric metric, double value) {
  return value >= info(metric).range.lowest && value <= info(metric).range.highest;
}
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
