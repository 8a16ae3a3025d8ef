#pragma once
// The signals that lull knows, in one table: what a rule may name, what a trace
// has columns for, what JSON calls them. To add a signal, add it to the enum and
// to the table; every reader and writer goes by the table. Signals of the user's own
// ([signals] of lull.toml, --signal-from) follow behind it: gpu/own_signal.h names them.

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
  sm,
  tensor,
  dram,
  cpu,
  io,
  quiet,
  beat,
  job_util,
  user_idle,
  effort,
  learned,
  idle_power,
};
inline constexpr std::size_t kBuiltInMetrics = 26;
inline constexpr std::size_t kOwnSignals = 8;  // of the user's own, at most
inline constexpr std::size_t kMetrics = kBuiltInMetrics + kOwnSignals;
static_assert(kMetrics <= 64, "sets of metrics are kept as bits of 64 (engine/judge.cc)");

enum class Unit : std::uint8_t { percent, bytes, watts, celsius, megahertz, bytes_per_second, count, seconds, none };
enum class Of : std::uint8_t { gpu, job, machine };

// What a metric can be on any machine there is, with room to spare. A driver that says more (or less) is
// wrong: real ones answer "unknown" with all bits set, and garbage when they break. See plausible().
struct MetricRange {
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
  MetricRange range;
};

inline constexpr MetricRange kPercentRange = {0, 100};
inline constexpr MetricRange kBytesRange = {0, 1125899906842624};  // 1 PiB: a thousand times what a card has
inline constexpr double kMostWatts = 10'000;                       // five times what a card draws
inline constexpr MetricRange kProcessRange = {0, 4'194'304};       // PID_MAX_LIMIT
inline constexpr MetricRange kSecondsRange = {0, 1e11};            // 3000 years: a terminal's time stamp may be 0

constexpr MetricInfo metric_row(Metric metric, std::string_view name, std::string_view field, Unit unit, Of of,
                                MetricRange range, std::string_view meaning, std::optional<Metric> whole = {}) {
  return {metric, name, field, unit, of, whole, meaning, range};
}

inline constexpr std::array<MetricInfo, kBuiltInMetrics> kMetricTable = {
    metric_row(Metric::util, "util", "util_percent", Unit::percent, Of::gpu, kPercentRange,
               "share of time a kernel ran since the previous sample"),
    metric_row(Metric::mem_util, "mem_util", "mem_util_percent", Unit::percent, Of::gpu, kPercentRange,
               "memory controller activity"),
    metric_row(Metric::mem_used, "mem_used", "mem_used_bytes", Unit::bytes, Of::gpu, kBytesRange, "memory in use",
               Metric::mem_total),
    metric_row(Metric::mem_free, "mem_free", "mem_free_bytes", Unit::bytes, Of::gpu, kBytesRange, "memory free",
               Metric::mem_total),
    metric_row(Metric::mem_total, "mem_total", "mem_total_bytes", Unit::bytes, Of::gpu, {1, kBytesRange.highest},
               "memory in all"),
    metric_row(Metric::power, "power", "power_watts", Unit::watts, Of::gpu, {0, kMostWatts},
               "mean power since the previous sample", Metric::power_limit),
    metric_row(Metric::power_limit, "power_limit", "power_limit_watts", Unit::watts, Of::gpu, {1, kMostWatts},
               "enforced power limit"),
    metric_row(Metric::temp, "temp", "temp_celsius", Unit::celsius, Of::gpu, {-60, 250}, "temperature of the chip"),
    metric_row(Metric::clock, "clock", "clock_mhz", Unit::megahertz, Of::gpu, {0, 20'000},
               "clock of the multiprocessors"),
    metric_row(Metric::pstate, "pstate", "pstate", Unit::none, Of::gpu, {0, 15}, "performance state, 0 is the fastest"),
    metric_row(Metric::fan, "fan", "fan_percent", Unit::percent, Of::gpu, {0, 250}, "fan speed"),
    metric_row(Metric::pcie, "pcie", "pcie_bytes_per_second", Unit::bytes_per_second, Of::gpu, {0, 1e13},
               "PCIe traffic, both directions"),
    metric_row(Metric::procs, "procs", "procs", Unit::count, Of::gpu, kProcessRange,
               "processes with a compute context"),
    metric_row(Metric::openers, "openers", "openers", Unit::count, Of::gpu, kProcessRange,
               "processes that hold the device file open"),
    metric_row(Metric::sm, "sm", "sm_active_percent", Unit::percent, Of::gpu, kPercentRange,
               "share of the multiprocessors that worked since the previous sample, by the chip's counters"),
    metric_row(Metric::tensor, "tensor", "tensor_active_percent", Unit::percent, Of::gpu, kPercentRange,
               "the same of the tensor cores"),
    metric_row(Metric::dram, "dram", "dram_active_percent", Unit::percent, Of::gpu, kPercentRange,
               "the same of the memory's bandwidth"),
    metric_row(Metric::cpu, "cpu", "cpu_percent", Unit::percent, Of::job, {0, 1e7}, "CPU of the job's process tree"),
    metric_row(Metric::io, "io", "io_bytes_per_second", Unit::bytes_per_second, Of::job, {0, 1e15},
               "bytes the job's tree reads and writes"),
    metric_row(Metric::quiet, "quiet", "quiet_seconds", Unit::seconds, Of::job, kSecondsRange,
               "time since the job last wrote anything"),
    metric_row(Metric::beat, "beat", "beat_seconds", Unit::seconds, Of::job, kSecondsRange,
               "time since the program last called beat(), in Python"),
    metric_row(Metric::job_util, "job_util", "job_util_percent", Unit::percent, Of::job, kPercentRange,
               "the job's own share of its busiest GPU, by the driver's samples per process"),
    metric_row(Metric::user_idle, "user_idle", "user_idle_seconds", Unit::seconds, Of::machine, kSecondsRange,
               "time since the last key on a terminal of a user who counts"),
    metric_row(Metric::effort, "effort", "effort_percent", Unit::percent, Of::gpu, {0, 1000},
               "power for this utilisation, compared with what this card usually draws for it"),
    metric_row(Metric::learned, "learned", "learned_seconds", Unit::seconds, Of::gpu, kSecondsRange,
               "how much work of this card `effort` was learned from"),
    metric_row(Metric::idle_power, "idle_power", "idle_power_watts", Unit::watts, Of::gpu, {0, kMostWatts},
               "lowest mean power of this card seen at util < 1"),
};

// What no driver tells and no trace holds: lull learns it from util, power and power_limit (gpu/power_learner.h).
constexpr bool is_learned(Metric metric) {
  return metric == Metric::effort || metric == Metric::learned || metric == Metric::idle_power;
}
// By the chip's own counters, of the time since the previous sample. Dear to read.
constexpr bool is_counter(Metric metric) {
  return metric == Metric::sm || metric == Metric::tensor || metric == Metric::dram;
}
inline constexpr std::array kLearnedFrom = {Metric::util, Metric::power, Metric::power_limit};

constexpr std::size_t index_of(Metric metric) { return static_cast<std::size_t>(metric); }
constexpr bool is_own(Metric metric) { return index_of(metric) >= kBuiltInMetrics; }
const MetricInfo& own_signal(std::size_t place);                      // own_signal.cc
std::optional<Metric> own_signal_by(std::string_view name_or_field);  // likewise
constexpr const MetricInfo& info(Metric metric) {
  return is_own(metric) ? own_signal(index_of(metric) - kBuiltInMetrics) : kMetricTable[index_of(metric)];
}
// A number that the metric can be. Everything else is unknown, as NaN is.
constexpr bool plausible(Metric metric, double value) {
  return value >= info(metric).range.lowest && value <= info(metric).range.highest;
}
constexpr std::optional<Metric> metric_by_name(std::string_view name) {
  for (const MetricInfo& row : kMetricTable)
    if (row.name == name) return row.metric;
  return own_signal_by(name);
}
constexpr std::optional<Metric> metric_by_field(std::string_view field) {
  for (const MetricInfo& row : kMetricTable)
    if (row.field == field) return row.metric;
  return own_signal_by(field);
}

// The table is indexed by the enum: a row in the wrong place does not compile.
static_assert([] {
  for (std::size_t i = 0; i < kBuiltInMetrics; ++i)
    if (index_of(kMetricTable[i].metric) != i) return false;
  return true;
}());

// A value that the device did not report. It compares neither below nor above
// any threshold, so an unknown never looks idle and never looks busy.
inline constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
inline constexpr float kUnknownSample = std::numeric_limits<float>::quiet_NaN();

}  // namespace lull
