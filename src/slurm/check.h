#pragma once
// `lull slurm check`: what this node lacks for `lull watch --slurm`, and how to fix each. All commands run at once,
// each within kCommandLimit. What could not be looked at is unknown, never fine.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "slurm/act_on_job.h"
#include "slurm/allocation.h"
#include "slurm/gres.h"

namespace lull::slurm {

struct CheckItem {
  enum class State : std::uint8_t {
    ok,
    missing,
    unknown,  // it could not be looked at
    untried,  // there was nothing to try it with
    differs,  // no mistake, but `lull watch --from` has to know
  };
  std::string name;
  State state = State::unknown;
  std::string text = {};  // what was found
  std::string fix = {};   // what to do about it
};
std::string_view to_text(CheckItem::State state);

// Prolog, Epilog, PrologFlags and the clock, by what `scontrol show config` printed at `now`.
std::vector<CheckItem> check_configuration(std::string_view output, WallTime now);
// The folder of the allocation files; `found` gets what is in it.
CheckItem check_folder(const std::string& folder, Allocations& found);

class NodeCheck {
 public:
  using Done = std::function<void(std::vector<CheckItem>)>;
  // `root`: we are; another user cannot run srun as the user of a job.
  // `counted`: the GPUs as an exporter counts them; empty: not known.
  NodeCheck(Run run, const Clock& clock, std::string folder, bool root, GpuOrder counted, Done done,
            GpuNumbers::Facts facts = gres_facts)
      : run_(std::move(run)),
        clock_(clock),
        folder_(std::move(folder)),
        root_(root),
        counted_(std::move(counted)),
        done_(std::move(done)),
        facts_(std::move(facts)) {}
  NodeCheck(const NodeCheck&) = delete;
  NodeCheck& operator=(const NodeCheck&) = delete;

  void start();

 private:
  void check_stale(const std::vector<Allocation>& jobs);
  void check_gpus(const std::vector<Allocation>& jobs);
  void check_order(const GpuNumbers& numbers);
  void check_users(const std::vector<Allocation>& jobs);
  void check_srun(const std::vector<Allocation>& jobs);
  void run(const Command& command, std::function<void(const HelperResult&)> then);
  void finish_one();

  Run run_;
  const Clock& clock_;
  std::string folder_;
  bool root_;
  GpuOrder counted_;
  Done done_;
  GpuNumbers::Facts facts_;
  std::size_t open_ = 1;  // commands under way, and start() itself
  std::vector<CheckItem> configuration_;
  CheckItem folder_item_{.name = "folder"};
  CheckItem gpus_{.name = "gpus"};
  CheckItem order_{.name = "gpu-order"};
  CheckItem stale_{.name = "stale"};
  CheckItem users_{.name = "users"};
  CheckItem srun_{.name = "srun"};
};

// 0: all fine. 1: something is missing. 125: nothing is, as far as it could be looked at.
int status_of(const std::vector<CheckItem>& items);
std::string check_text(const std::vector<CheckItem>& items);
std::string check_json(const std::string& node, const std::vector<CheckItem>& items);

}  // namespace lull::slurm
