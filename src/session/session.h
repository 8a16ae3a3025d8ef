#pragma once
// What every watching command is: samples go to the engine, its events to the sinks and, where a rule fires, to the
// executor; all of it on one loop. `lull run` (run_session.h) adds a job of its own, `lull watch` (watch_session.h)
// actions of the user; the drop-ins are settings and sinks of these two.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.h"
#include "engine/engine.h"
#include "jobs/also.h"
#include "session/feed.h"
#include "session/sink.h"
#include "session/world.h"

namespace lull {

struct SessionSettings : CommonSettings {
  Policy policy;
  std::optional<Rule> warn_by = {};    // when this fires, that is said, and nothing else is done
  std::string gpus_option = "--gpus";  // what that is called where it is given
  bool absent_left_out = false;        // of these
  bool all_without_context = false;    // a job without a GPU of its own is judged by all of them
  Also also;                           // work that counts as the subject's, wherever its processes are
  bool first_may_fire = false;         // the first sample after the delay, which has others before it
  std::optional<Duration> max_time = {};
  bool watch_work = false;  // cpu, io and quiet of the job, and every signal of its GPUs, whatever the rule asks for
};

// "SIGTERM to its process tree, SIGKILL to what is left after 10s".
std::string to_text(const Ending::Options& how);

class Session {
 public:
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  virtual ~Session() = default;

 protected:
  Session(SessionSettings settings, SubjectId subject, World& world, Sink& sink);

  // `of_job`: our environment is the job's. `everything`: read all signals, for evidence.
  void make_feed(bool of_job, bool everything, JobGpus::IsOurs is_ours, bool job_is_new = false);
  // The subject begins now, with an engine that remembers nothing.
  void begin_subject();
  void warn_of_missing_also();
  // Does what a firing asks for; acted() is told how that went.
  // `in_any_case`: whatever the GPUs show, the first action needs no sample.
  void act(std::vector<Action*> actions, Executor::Retries retries, FiringFacts facts, bool in_any_case = false);
  void set_stopped(bool stopped);
  // One of the work's processes with a GPU context is stopped (with `traced`: also by a debugger), or it or one of
  // `others` is frozen: it is not idle, it waits. Said once each time; `whose`: "the job", "the work".
  bool is_paused(bool traced, std::vector<pid_t> others, std::string_view whose, std::string_view of);
  // What is known of the work's cpu, io and quiet.
  void add_usage(const JobUsage& usage);
  const SubjectState& judged() const { return *engine_->find(subject_.id); }
  // The facts of now.
  FiringFacts facts(std::string event, Explanation why, std::string action) const;
  void end(SessionEnd how);

  // If the rule that fired is that for hangs: where the work is. (Evidence says it otherwise.)
  void log_hang();

  // By a sample of now the rule does not hold, for sure. Unknown: what it does now cannot be seen.
  Truth works_again() const;
  // The next sample is a confirmation.
  bool needs_more_samples() const { return acting_ && (feed_->confirming() || acting_->spares_who_works()); }

  // ---- what differs between commands
  virtual bool wants_samples() const { return true; }
  virtual void sense(const Snapshot& snapshot) = 0;  // fills in the subject, before it is judged
  virtual void fired(const Fired& fired) = 0;        // on what is known to be so now
  virtual void time_is_up(const TimeUp&) {}
  virtual void acted(bool all, bool called_off) = 0;
  virtual void tell(const ActionEvent& action_event) { sink_.did(action_event); }
  virtual Executor::Calls calls(bool in_any_case);  // by which the executor acts
  // The processes of the work, of which the log says where they hang.
  virtual std::vector<pid_t> who_hangs() { return {}; }

  SessionSettings common_;
  World& world_;
  Loop& loop_;
  Sink& sink_;
  Subject subject_;
  std::optional<Engine> engine_;
  std::optional<Feed> feed_;
  std::unique_ptr<Executor> acting_;
  bool rule_wants_work_ = false;  // cpu, io or quiet
  SessionEnd end_;

  // A firing that is being confirmed is not acted on. False: there is none.
  bool cancel_unconfirmed() { return confirming_first_ && (first_called_off_ = true); }

 private:
  void on_sample(const Snapshot& snapshot, const Scope& scope);
  void handle(std::span<const Event> events);
  void confirm_first(const Fired& fire);
  void not_confirmed();
  // The rule that fired holds by a sample of now, and by the newest data of it. (A dry run ends nothing, and says what
  // a replay of its recording says: what fired.)
  bool still_wanted() const {
    if (!feed_->is_fresh()) return false;
    return common_.dry_run ? engine_->holds(subject_.id) : feed_->covers() && engine_->holds_now(subject_.id);
  }
  void warn(const Event& event);
  void log_scope_trouble();
  void set_time_limit();

  Instant went_on_{};  // after its last stop
  bool stop_said_ = false;
  bool freeze_said_ = false;
  bool uncounted_said_ = false;
  bool confirming_first_ = false;    // a firing of which nothing was said yet
  bool first_called_off_ = false;    // and that is over
  bool not_confirmed_said_ = false;  // of the stretch that goes on
  Timer time_limit_{loop_};
};

}  // namespace lull
