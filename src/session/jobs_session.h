#pragma once
// The jobs that have GPUs on this machine, once or live: `lull jobs`. Slurm's by their allocation files, with processes
// or without; others by their processes and leases. What a `lull watch --per` knows of them is asked of it; nothing is
// judged here.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "jobs/gpu_users.h"
#include "session/control.h"
#include "session/live_view.h"
#include "session/slurm_jobs.h"
#include "session/watched_job.h"
#include "view/jobs.h"

namespace lull {

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
  // A row, and what tells who it is.
  struct Found {
    JobRow row;
    std::string key;  // of the subject that a watcher makes of it
    std::set<uid_t> owners = {};
    std::set<std::pair<pid_t, std::uint64_t>> processes = {};
    std::vector<DeviceId> devices = {};
    std::uint64_t memory = 0;  // of the process that names the row
  };
  SamplerOptions sampling() const;
  void see(const Snapshot& snapshot);
  void add_slurm_jobs(const std::vector<GpuUse>& uses);
  void add_users(const GpuUse& use);
  void add_leases(const std::vector<GpuUse>& uses);
  void ask_watchers();
  void add_what_watchers_say(Found& found) const;
  Found& found_as(const std::string& job, const std::string& unknown_on);
  void add_gpu(Found& found, const GpuUse& use) const;
  void say_once(const std::string& text);
  std::optional<SessionEnd> show(const Snapshot& snapshot);
  std::optional<SessionEnd> draw();

  JobsSettings settings_;
  Say say_;
  SlurmJobs slurm_;
  GpuUsers users_;
  const Snapshot* snapshot_ = nullptr;  // while it is looked at
  std::vector<Found> found_;
  std::vector<std::pair<uid_t, WatchedJob>> watched_;  // whose watcher says so
  Instant ask_again_ = Instant::min();
  std::set<std::string> said_;
  std::string trouble_;
  JobsView view_;
  LiveView live_;
};

}  // namespace lull
