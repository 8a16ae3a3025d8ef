#pragma once
// Which processes are parked, and whether that can be done at all: everything that is checked before the first step.
// What cannot be seen is a reason against it.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"
#include "lease/folder.h"
#include "park/record.h"

namespace lull {

inline constexpr std::uint64_t kParkMargin = std::uint64_t{256} << 20;  // bytes that must be free beyond what is needed

// Who is meant. A PID: that process and all that it started. PID@START: that process alone, of this start time (field
// 22 of /proc/PID/stat); PID@START+ with all that it started. Else a job as `lull jobs` names it.
struct ParkTarget {
  struct One {
    pid_t pid = 0;
    std::optional<std::uint64_t> start_ticks = {};
    bool alone = false;  // without what it started
  };
  std::vector<One> processes = {};
  std::string job = {};
  std::string text = {};
  static Result<ParkTarget> parse(const std::vector<std::string>& words);
};

// A process that is to be parked, held by its pidfd from here on.
struct ParkPlan {
  ParkRecord record;  // without id, tool and step
  std::vector<Process> processes;
  Process root;
};

struct ParkObservations {
  const Snapshot& snapshot;
  const std::vector<GpuUse>& uses;  // of that snapshot, with UserDetail::jobs
  const std::vector<LeaseInfo>& leases;
  std::string machine;  // "x86_64"
  Root root = {};
  std::optional<pid_t> holder = {};  // whose leases are the job's as well
  std::string lease_folder = {};     // the files of `leases`
};
Result<ParkPlan> plan_parking(const ParkTarget& target, const ParkObservations& seen);

// The process has this file open for writing. A lease belongs to its maker and to who inherited it.
bool holds_open(pid_t pid, const std::string& file, const Root& root);

// The machine's memory and the limits of the cgroups take what is moved out of the GPUs.
Result<> check_host_memory(const ParkRecord& record, const Root& root);

}  // namespace lull
