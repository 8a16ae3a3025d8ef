#pragma once
// The Slurm jobs of this node, for `lull watch --slurm`: by their allocation files, looked at with every sample.

#include <sys/types.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "jobs/subject_tracker.h"
#include "slurm/allocation.h"
#include "slurm/gres.h"
#include "slurm/user_rule.h"
#include "slurm/verb.h"

namespace lull {

struct SlurmSettings {
  enum class Source : std::uint8_t { lull, gpustat, dcgm };
  Source source = Source::lull;
  std::string folder;
  std::vector<std::pair<Source, std::string>> others = {};  // and their folders: for jobs that have no file of ours
  std::string node;
  slurm::ActPolicy policy = {};
  std::set<uid_t> except_users = {};
  std::set<uid_t> only_users = {};                      // empty: all users
  std::optional<slurm::GpuOrder> gpus = {};             // as Slurm counts them; nothing: `slurmd -G` says it
  Duration delay{};                                     // nothing is done to a job before it has run for so long
  Duration user_rule_at_most = std::chrono::hours(24);  // the longest time that a user can ask for
};
// "", "DIR", "gpustat:DIR", "dcgm:DIR"
SlurmSettings slurm_settings(std::string_view text);

class SlurmJobs {
 public:
  explicit SlurmJobs(SlurmSettings settings);

  // Reads the files. Jobs whose files cannot be read or are not to be believed are not among them.
  std::vector<AllocatedJob> look(Instant now, WallTime wall);
  // About files, for a person; each as long as it is so once.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  // By the SLUID that a cgroup is named by, where Slurm has one.
  std::map<std::string, std::uint64_t> sluids() const;
  // Slurm knows no such job: a file that its Epilog left behind.
  void drop(const std::string& name);
  slurm::GpuNumbers& numbers() { return numbers_; }
  const slurm::GpuNumbers& numbers() const { return numbers_; }
  const slurm::Allocation* find(std::string_view name) const;             // "slurm:22"
  std::optional<slurm::UserRule> asked_for(std::string_view name) const;  // by the job's user
  Instant not_before(std::string_view name) const;  // by the delay; nothing is done to a job that is not known
  bool leaves_alone(const slurm::Allocation& job) const;
  const std::vector<slurm::Allocation>& all() const { return all_; }
  const SlurmSettings& settings() const { return settings_; }

 private:
  void add_others(slurm::Allocations& found);
  void note_begins(Instant now, WallTime wall);

  SlurmSettings settings_;
  slurm::GpuNumbers numbers_;
  std::vector<slurm::Allocation> all_;
  std::set<std::uint64_t> by_driver_;     // jobs whose GPUs are counted as the driver does
  std::map<std::string, Instant> began_;  // by name and run; the clock that is set does not move it
  std::set<std::string> said_;
  std::vector<std::string> notes_;
};

}  // namespace lull
