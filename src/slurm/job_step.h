#pragma once
// The action slurm=VERB of `lull watch --slurm`, and what comes before notify and exec for a job on several nodes: all
// nodes of the job are asked first, and nothing is done unless each has said yes (answer.h). What cannot be done now is
// tried again when it could be.
//
// The first node that has GPUs of the job acts. Slurm acts on a het job as a whole: the nodes of all its components are
// asked, and the first node with GPUs of the first component that has some acts; the others leave it to that one.

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "act/action.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "slurm/act_on_job.h"
#include "slurm/allocation.h"
#include "slurm/ask_nodes.h"
#include "slurm/verb.h"

namespace lull::slurm {

class JobStep final : public Action {
 public:
  struct Options {
    std::string text;  // "slurm=requeue"
    Allocation job;
    std::optional<Verb> verb = {};  // nothing: the nodes are asked, and that is all
    bool acts = false;              // without a verb: more follows than a notice
    ActPolicy policy = {};
    std::string program = "lull";  // that each node runs: lull slurm ask …
    std::string rule = {};
    bool dry_run = false;                  // all but the verb and what comes with it
    bool asks_nodes = true;                // else whoever judged has seen all GPUs of the job
    std::shared_ptr<AskNodes> early = {};  // asked already; without an agreement it is asked again
  };
  JobStep(Loop& loop, Run run, Options options) : loop_(loop), run_(std::move(run)), options_(std::move(options)) {}
  ~JobStep() override { *here_ = false; }

  const std::string& text() const override { return options_.text; }
  void start(const FiringFacts& facts, Done done, Tell tell) override;
  void ask_before_acting(Leave leave) override { leave_ = std::move(leave); }
  bool undo() override;
  bool may_be_repeated() const override { return !given_up_; }
  // It is too late: what ends the job, or a part of its work, is on its way.
  bool ends_work() const override {
    return options_.verb && options_.verb->kind != VerbKind::comment && acting_ && acting_->too_late();
  }
  // Told the time that the job's Comment asks for; true: it is given, and nothing is done. Not set: it is not read.
  std::function<bool(WallTime until)> on_keep = {};
  // Slurm knows no such job.
  std::function<void()> on_gone = {};
  // The verb had no answer, and may still be done.
  std::function<void(const ActResult&)> on_unanswered = {};
  // A requeue that was done, for who keeps on looking after we are gone.
  std::function<void(const ActResult&)> on_requeued;

 private:
  void ask();
  void heard(const NodesSaid& said, bool early);
  void act();
  void look(std::optional<Verb> verb);
  void check(std::function<void()> go);
  void acted(const ActResult& result);
  void not_now(std::string why, std::optional<Duration> again_in = {});
  void give_up(std::string why);
  void finish(const Outcome& outcome);

  Loop& loop_;
  Run run_;
  Options options_;
  Leave leave_;
  Done done_;
  Tell tell_;
  std::string reason_;
  Duration idle_for_{};  // that the rule asks for
  std::vector<NodeGroup> groups_;
  bool early_ = true;
  std::shared_ptr<AskNodes> asking_;  // other nodes than this one
  std::unique_ptr<ActOnJob> acting_;
  bool given_up_ = false;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

// "lull: util < 1 for 2h held for 2h3m on GPUs 0, 1 since 2026-…; lull keep slurm:22 4h keeps it"
std::string reason_of(const FiringFacts& facts, const Allocation& job);

}  // namespace lull::slurm
