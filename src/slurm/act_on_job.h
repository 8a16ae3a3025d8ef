#pragma once
// Does one thing to one job through Slurm: looks at it with squeue, then AdminComment, then the verb; each command ends
// within kCommandLimit. `lull slurm act` and the step of `lull watch --slurm` do it so. Nothing here blocks.
// What was changed for a verb that is not sent after all is changed back.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "act/children.h"
#include "base/clock.h"
#include "loop/loop.h"
#include "slurm/verb.h"

namespace lull::slurm {

// Runs a command; all that it printed comes back as text.
using Run = std::function<void(const Command& command, Duration limit, Helpers::Done done)>;

struct ActResult {
  enum class Kind : std::uint8_t {
    done,
    no_longer,  // the job does not run any more, or is another run of it, or another job
    not_now,    // the controller is silent, or not all of the job was judged
    kept,       // its Comment asks for time, and gets it
    refused,    // it cannot be done to such a job
    failed,
  };
  Kind kind = Kind::failed;
  std::string text = {};                  // what was done, or why not
  Verb verb = {};                         // that was done
  std::string id = {};                    // of the job, as scontrol takes it
  bool gone = false;                      // Slurm knows no such job
  bool unanswered = false;                // not_now: the verb was sent, and Slurm may still do it
  std::optional<Duration> again_in = {};  // then it could be
};

// What was judged of a job, or of one component of a het job.
struct JudgedPart {
  std::uint64_t job = 0;
  std::vector<std::string> nodes = {};
  std::vector<NodeGpu> gpus = {};
};

class ActOnJob {
 public:
  struct Request {
    Judged judged = {};
    // Nothing is done unless these are the GPUs that Slurm says it has given (`scontrol show job -d`), and the job has
    // run without a break since `runs_since`. Empty: that was compared by whoever asks.
    std::vector<JudgedPart> parts = {};
    WallTime runs_since{};
    std::optional<Verb> verb = {};  // nothing: it is looked at, and that is all
    bool acts = false;              // without a verb: a command follows, which may do anything to the job
    ActPolicy policy = {};
    std::string reason = {};  // for AdminComment; empty: it stays as it is
    bool dry_run = false;
    // The het job whose components have all agreed, 0: of none. Nothing: act on all components, whatever it is part of.
    std::optional<std::uint64_t> het_job = {};
    // Told the time that the job's Comment asks for; true: it is given. Not set: the Comment is not read.
    std::function<bool(WallTime until)> keep = {};
  };
  // Right before what cannot be undone: calls back if it may still be done, else never.
  using Check = std::function<void(std::function<void()> go)>;
  using Done = std::function<void(const ActResult&)>;
  ActOnJob(Run run, Request request, Check check, Done done)
      : run_(std::move(run)), request_(std::move(request)), check_(std::move(check)), done_(std::move(done)) {}
  ActOnJob(const ActOnJob&) = delete;
  ActOnJob& operator=(const ActOnJob&) = delete;
  ~ActOnJob() { leave_off(); }

  void start();
  void leave_off();                        // nothing more is done
  bool too_late() const { return sent_; }  // the verb is on its way, or was done

 private:
  void look(const Command& command, std::optional<HelperResult>& answer);
  void looked();
  bool is_as_judged();
  bool keeps();
  void not_sent();
  void comment();
  void prepare(std::size_t at);
  void send();
  void finish(ActResult::Kind kind, std::string text, bool gone = false, std::optional<Duration> again_in = {});
  void finish(ActResult result);
  void run(const Command& command, const std::function<void(const HelperResult&)>& then,
           Duration limit = kCommandLimit);

  Run run_;
  Request request_;
  Check check_;
  Done done_;
  std::optional<HelperResult> state_;
  std::optional<HelperResult> comment_;
  std::vector<std::optional<HelperResult>> given_;  // of each part
  std::size_t looking_ = 0;                         // answers that are missing
  bool changed_ = false;                            // by what comes before the verb
  Doing doing_;
  std::string id_;
  bool sent_ = false;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // false once we are gone
};

// After a requeue Slurm waits two minutes before it starts the job again. This asks it to start it at once, some
// seconds after it is pending: earlier, Slurm would start it without its Prolog. One that is not pending within `limit`
// is left alone.
class StartAgain {
 public:
  StartAgain(Loop& loop, Run run, std::uint64_t job, std::string id, std::function<void(bool asked)> over,
             Duration limit = std::chrono::minutes(2));
  StartAgain(const StartAgain&) = delete;
  StartAgain& operator=(const StartAgain&) = delete;
  ~StartAgain();

 private:
  void look_later();
  void look();
  void finish(bool asked);

  Loop& loop_;
  Run run_;
  std::uint64_t job_;
  std::string id_;
  std::function<void(bool)> over_;
  Instant until_;
  std::optional<Instant> pending_since_;
  std::optional<Loop::TimerId> timer_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);
};

}  // namespace lull::slurm
