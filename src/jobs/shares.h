#pragma once
// `job_util`: how much of its GPUs a job uses by itself. The driver's shares (Reading::shares) have only pids; GpuUsers
// tells their jobs. Pure: no clock, no file.
//
// Nothing that could be the job's counts as zero. The GPU's shares are unknown with an unidentified process, a share of
// a pid without a known process, work without a listed process, a driver that hides processes, or an MPS server (which
// works for others).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"

namespace lull {

class JobShares {
 public:
  // The job of a process; nothing: unknown.
  using JobOf = std::function<std::optional<std::string>(const GpuProcess&)>;

  // With each sample. `uses`: one for each device of the snapshot.
  void look(const Snapshot& snapshot, const std::vector<GpuUse>& uses, const JobOf& job_of);
  // The job's share of the busiest of these GPUs; unknown if it is unknown of one of them.
  void add_to(Facts& facts, const std::string& job, const std::vector<Device>& scope) const;

 private:
  struct Owner {
    std::uint64_t start_ticks = 0;
    std::optional<std::string> job;  // nothing: unknown
  };
  using Owners = std::map<pid_t, Owner>;
  struct Account {
    Device device;
    Absence absence = Absence::not_asked;          // of all jobs
    std::map<std::string, double> used = {};       // %, of who used any
    std::map<std::string, Absence> doubtful = {};  // jobs of which it is unknown
    std::optional<Owners> owners = {};             // all who were there; nothing: that is not known
  };
  static void look_at(Account& account, const std::optional<Owners>& before, const Reading& reading, const GpuUse& use,
                      const JobOf& job_of);
  static Owners owners_of(const GpuUse& use, const JobOf& job_of);
  static void add_shares(Account& account, const Owners& before, const Reading& reading);

  std::vector<Account> accounts_;  // one for each device of the newest sample
};

}  // namespace lull
