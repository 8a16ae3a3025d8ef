#pragma once
// Which node of a job asks the others and acts: the first one that has GPUs of the job. The first node of the list
// knows it of itself. Another one asks slurmctld, once for each run of a job, and only after the first node would have
// acted: that one nearly always has GPUs, and then there is no job left to ask about.
//
// What slurmctld says only chooses who asks. The answers of all nodes must name the same leader (slurm/job_step.h).

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "slurm/act_on_job.h"
#include "slurm/allocation.h"

namespace lull::slurm {

class Leaders {
 public:
  explicit Leaders(Run run) : run_(std::move(run)) {}
  Leaders(const Leaders&) = delete;
  Leaders& operator=(const Leaders&) = delete;
  ~Leaders() { *here_ = false; }

  // Nothing: it is not known yet; ask again with the next sample.
  std::optional<bool> leads(const Allocation& job, Instant now);
  // Forgets all other jobs.
  void keep(const std::vector<Allocation>& jobs);

 private:
  struct Place {
    Instant ask_at{};
    bool asking = false;
    std::optional<bool> leads = {};
  };
  void ask(const Allocation& job, const std::vector<std::string>& nodes, Instant now);

  Run run_;
  std::map<std::string, Place> places_;  // by key_of()
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace lull::slurm
