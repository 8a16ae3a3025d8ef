#pragma once
// What the process tree of a job does beside its GPUs: how much CPU it uses, how
// many bytes it reads and writes, and for how long it has written nothing. Fed
// with the tree's members at each sample (who they are is not this file's to
// know), it answers for the time since the sample before.
//
// Processes come and go between samples. What a child did enters its parent's
// account when it is waited for, so work done in short-lived children is seen;
// that of a long-lived one shows a second time when it ends. Where it cannot be
// exact it is too busy, never too idle. A process whose account may not be read
// makes `io` and `quiet` unknown.

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "gpu/metric.h"
#include "gpu/snapshot.h"

namespace lull {

struct JobUsage {
  double cpu_percent = kUnknown;  // of one core: 250 is two and a half cores
  double io_bytes_per_second = kUnknown;
  double quiet_seconds = kUnknown;
  bool io_unreadable = false;
};

class JobSensor {
 public:
  explicit JobSensor(Root root = {}) : root_(std::move(root)) {}

  // `cgroup_cpu`: microseconds that the job's own cgroup counted, which is exact.
  JobUsage sample(std::span<const ProcessEntry> members, Instant at, std::optional<std::uint64_t> cgroup_cpu);
  void reset();  // a new job

 private:
  struct Account {
    std::uint64_t start_ticks = 0;
    std::uint64_t cpu_ticks = 0;  // its own and of the children it waited for
    bool io_known = false;
    std::uint64_t read_bytes = 0;
    std::uint64_t written_bytes = 0;
  };
  Account account_of(const ProcessEntry& entry) const;

  Root root_;
  std::unordered_map<pid_t, Account> before_;
  std::unordered_map<pid_t, Account> now_;
  std::optional<Instant> last_at_;
  std::optional<std::uint64_t> cgroup_before_;
  std::optional<Instant> last_wrote_;
};

// The same for every reading: a rule looks at columns of GPUs and does not care
// where a signal comes from.
void fill_job(Snapshot& snapshot, const JobUsage& usage);

}  // namespace lull
