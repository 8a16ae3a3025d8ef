#pragma once
// Asks all nodes of a job whether it may be acted on: one srun for a job, one for each component of a het job. What
// they said is good for a while only.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "loop/loop.h"
#include "slurm/act_on_job.h"
#include "slurm/allocation.h"
#include "slurm/answer.h"

namespace lull::slurm {

inline constexpr Duration kLookAgain = std::chrono::seconds(10);  // at a job that does not run at the moment

// Who is asked by one srun: the nodes of a job, or of one component of a het job.
struct NodeGroup {
  std::uint64_t job = 0;
  unsigned restarts = 0;
  std::vector<std::string> nodes = {};
  std::optional<unsigned> number = {};  // of the component
  std::optional<Agreement> heard = {};
  bool unknown = false;  // srun says that there is no such job
};

struct NodesSaid {
  std::vector<NodeGroup> groups = {};
  std::string why = {};                   // they do not agree, or it is another node that acts; empty: they do
  std::optional<Duration> again_in = {};  // then they could
  bool never = false;                     // they cannot be asked
  bool unknown() const;                   // of one group srun says that there is no such job
};

class AskNodes {
 public:
  struct Options {
    Allocation job;                // whose restarts and nodes are known
    std::string program = "lull";  // that each node runs: lull slurm ask …
    std::string rule = {};
  };
  AskNodes(Loop& loop, Run run, Options options) : loop_(loop), run_(std::move(run)), options_(std::move(options)) {}
  AskNodes(const AskNodes&) = delete;
  AskNodes& operator=(const AskNodes&) = delete;
  ~AskNodes() { *here_ = false; }

  void start();
  // Calls back once all have answered: at once if they have.
  void when_heard(std::function<void(const NodesSaid&)> heard);
  Duration age() const { return loop_.now() - asked_; }  // of the question

 private:
  void look_at_components();
  void ask_components(const HelperResult& result);
  void ask(std::vector<NodeGroup> groups);
  void ask_one(std::size_t at);
  void heard(std::size_t at, const HelperResult& result);
  void all_heard();
  void finish(std::string why, std::optional<Duration> again_in = {}, bool never = false);

  Loop& loop_;
  Run run_;
  Options options_;
  Instant asked_{};
  NodesSaid said_;
  bool over_ = false;
  std::function<void(const NodesSaid&)> heard_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

// Which node of a job asks the others and acts: the first one that has GPUs of the job. The first node of the list
// knows it of itself. Another one asks slurmctld, once for each run of a job, and only after the first node would have
// acted: that one nearly always has GPUs, and then there is no job left to ask about.
//
// What slurmctld says only chooses who asks. The answers of all nodes must name the same leader (slurm/job_step.h).
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
