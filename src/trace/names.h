#pragma once
// What a column, a field or a time series is, from its name: our own names, nvidia-smi's,
// DCGM's, the exporters' and what people call them, in any case and with the usual
// suffixes (gpu_util_pct, power_w, mem_used_mib). A name may also say of which GPU
// (gpu0_util, system.gpu.0.gpu, DCGM_FI_DEV_GPU_UTIL{gpu="0"}).

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/metric.h"
#include "trace/schema.h"

namespace lull::trace {

struct Meaning {
  Role role = Role::none;
  Metric metric{};
  int rank = 0;               // of several columns for one role the lowest is read
  double scale = 1;           // what a bare number must be multiplied with
  bool size_unclear = false;  // bytes or MiB: the numbers tell
  bool bare = false;          // the name does not say the unit: its own is assumed (Schema::doubtful)
};
std::optional<Meaning> meaning_of(std::string_view name);

// "time_ms" -> ms; empty: its name has none.
std::string_view unit_in_name(std::string_view name);

// "memory.used [MiB]", "Power (W)" -> the name and its unit.
struct Heading {
  std::string name;
  std::string unit;
};
Heading heading_of(std::string_view cell);

// Which GPU a series is of. Empty: not said.
struct GpuName {
  std::string gpu;
  std::string uuid;
  std::string host;
  bool operator==(const GpuName&) const = default;
};
inline const std::vector<Role> kGpuNameRoles = {Role::gpu, Role::uuid, Role::host};

// Who has it, as labels say. Empty: not said.
struct WhoName {
  std::string job;
  std::string pids;
  std::string user;
  std::string command;
  bool empty() const { return job.empty() && pids.empty() && user.empty() && command.empty(); }
};
inline const std::vector<Role> kSeriesRoles = {Role::gpu,  Role::uuid, Role::host,   Role::job,
                                               Role::pids, Role::user, Role::command};

using Labels = std::vector<std::pair<std::string, std::string>>;

struct SeriesName {
  std::optional<Meaning> meaning;  // nothing: it does not say what is measured, or it is none of ours
  std::string measured;            // the words for that; empty: the name tells the GPU alone
  GpuName gpu;
  WhoName who = {};
  Labels labels = {};
};
SeriesName series_of(std::string_view name);
// The same from labels: __name__, gpu, UUID, Hostname, hpc_job, …
SeriesName series_of(const Labels& labels);

// How a number of such a series is to be read: bare, in the unit of its name.
float sample_of(const Meaning& meaning, double number);

}  // namespace lull::trace
