#pragma once
// Which jobs have GPUs on this machine, and what a `lull watch --per` knows of them: for `lull jobs` and lull-serve.
// Slurm's by their allocation files, with processes or without; others by their processes and leases. Nothing is judged
// here, and nobody is asked: who looks hears the watchers (control.h), and says what it heard.

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "jobs/gpu_users.h"
#include "session/control.h"
#include "session/slurm_jobs.h"
#include "session/watched_job.h"
#include "view/jobs.h"

namespace lull {

class JobsLook {
 public:
  JobsLook() : slurm_(slurm_settings("")) { slurm_.numbers().use_last(); }

  // `uses` and `leases`: of this snapshot.
  void see(const Snapshot& snapshot, const std::vector<GpuUse>& uses, const std::vector<LeaseInfo>& leases);
  bool any() const { return !found_.empty(); }
  // What watchers answered to kJobsQuestion, until the next answers.
  void hear(const std::vector<Reply>& replies);
  JobsView view() const;
  // For a person.
  std::vector<std::string> take_notes();

 private:
  // A row, and what tells who it is.
  struct Found {
    JobRow row;
    std::string key;  // of the subject that a watcher makes of it
    std::set<uid_t> owners = {};
    std::set<ProcessId> processes = {};
    std::vector<DeviceId> devices = {};
    std::uint64_t memory = 0;  // of the process that names the row
  };
  void add_slurm_jobs(const std::vector<GpuUse>& uses);
  void add_users(const GpuUse& use);
  void add_leases(const std::vector<GpuUse>& uses, const std::vector<LeaseInfo>& leases);
  JobRow with_what_watchers_say(const Found& found) const;
  Found& found_as(const std::string& job, const std::string& unknown_on);
  void add_gpu(Found& found, const GpuUse& use) const;

  SlurmJobs slurm_;
  const Snapshot* snapshot_ = nullptr;  // while it is looked at
  WallTime now_{};
  std::vector<Found> found_;
  std::vector<std::pair<uid_t, WatchedJob>> watched_;  // whose watcher says so
  std::vector<std::string> notes_;                     // on jobs whose GPUs are not known
};

}  // namespace lull
