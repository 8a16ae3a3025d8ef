#pragma once
// Which jobs have GPUs on this machine, and what a `lull watch --per` knows of them: for `lull jobs` and lull-serve.
// Slurm's by their allocation files, with processes or without; others by their processes and leases. Nothing is judged
// here, and no watcher is asked: the caller asks the watchers (control.h), and passes their answers.

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "jobs/gpu_users.h"
#include "session/control.h"
#include "session/live_view.h"
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

// The same once or live, with what a `lull watch --per` answers: `lull jobs`.
struct JobsSettings {
  bool json = false;
  std::optional<Duration> every;  // again and again
  int input = 0;                  // where keys come from
  int output = 1;
};

class JobsSession {
 public:
  using Say = std::function<void(const std::string&)>;
  JobsSession(JobsSettings settings, Say say);

  SessionEnd once();
  SessionEnd watch(World& world);

 private:
  SamplerOptions sampling() const;
  void see(const Snapshot& snapshot);
  void ask_watchers();
  void warn_once(const std::string& text);
  std::optional<SessionEnd> show(const Snapshot& snapshot);
  std::optional<SessionEnd> draw();

  JobsSettings settings_;
  Say say_;
  JobsLook look_;
  GpuUsers users_;
  Instant ask_again_ = Instant::min();
  std::set<std::string> said_;
  std::string trouble_;
  JobsView view_;
  LiveView live_;
};

}  // namespace lull
