#pragma once
// Watching many at once: each GPU, or each job that has one, is judged by itself and acted on by itself, for as long as
// we run. What one does or does not do never touches another: each has its own streaks, its own ladder of steps, its
// own actions under way and its own confirmation before each of them.
//
// `kill=holders` ends processes that held the GPUs when the rule fired and hold them now by a list of now. A process
// that holds other GPUs as well is ended only if the rule holds there, too.

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/exit_status.h"
#include "base/hours.h"
#include "engine/engine.h"
#include "jobs/shares.h"
#include "jobs/subject_tracker.h"
#include "session/control.h"
#include "session/feed.h"
#include "session/sink.h"
#include "session/slurm_jobs.h"
#include "session/watched_job.h"
#include "session/world.h"
#include "slurm/answer.h"
#include "slurm/ask_nodes.h"
#include "slurm/job_step.h"

namespace lull {

struct EachStep {
  Rule when;
  std::vector<ActionOption> actions;
};

struct EachSettings : CommonSettings, ActingSettings {
  SubjectOptions who;
  std::vector<EachStep> steps;  // the ladder
  std::optional<Rule> arm = {};
  Hours hours;  // in which something may be done
  Duration keep_at_most = std::chrono::hours(24);
  std::optional<SlurmSettings> slurm = {};  // Slurm's jobs alone, by what they were given
};

// How `lull keep` asks: what for (empty: all that is mine), and how much time.
std::string keep_question(const std::string& target, Duration time);
std::optional<std::pair<std::string, Duration>> read_keep_question(const std::string& question);
// The same for another user, which only root may: lull-serve, for its client.
std::string keep_question_for(uid_t user, const std::string& target, Duration time);
// The user, and the question; nothing: it is not for another user.
std::optional<std::pair<uid_t, std::string>> read_question_for(const std::string& question);

class EachSession {
 public:
  EachSession(EachSettings settings, World& world, Sink& sink);
  EachSession(const EachSession&) = delete;
  EachSession& operator=(const EachSession&) = delete;

  SessionEnd run();
  // `lull watch --cancel`: calls off what is about to be done; one line for whoever asks.
  std::string on_cancel(const std::string& who);
  // `lull keep`: more time for what `target` names (empty: all that is this user's); one line for whoever asks.
  std::string on_keep(uid_t user, const std::string& who, const std::string& target, Duration time);
  // `lull slurm ask`: whether the job's GPUs here are idle.
  slurm::Answer on_slurm_question(uid_t user, const slurm::Question& question) const;
  // The same, where a yes is one by a sample that was taken for the question.
  void answer_slurm(uid_t user, const slurm::Question& question, std::function<void(const slurm::Answer&)> answered);
  // `lull jobs`: all that are judged. All users may ask: what a GPU does is not secret on its machine.
  std::vector<WatchedJob> on_jobs_question() const;

 private:
  using Key = std::pair<SubjectId, std::uint32_t>;  // subject and step
  struct Acting {
    std::vector<std::unique_ptr<Action>> actions;
    std::unique_ptr<Executor> executor;
    LogSubject about;
    std::optional<FiringFacts> would = {};  // dry run: said once the nodes of a Slurm job agree
  };
  struct Kept {
    std::optional<Instant> since;  // the first time it was asked for since it last worked
    Instant until{};
    std::set<uid_t> users;  // another user's job on the same GPU has asked for nothing
  };

  struct Unanswered {
    std::string verb;
    Instant sent{};
  };

  Result<> prepare();
  Policy policy_to_read() const;
  void listen();
  void on_signal(const signalfd_siginfo& info);
  void on_sample(const Snapshot& snapshot, const Scope& scope);
  void log_users_trouble(const std::string& text);  // that was not there with the last sample
  void put_off(Instant at);
  void begin(const SubjectId& subject, Instant at);
  const std::vector<EachStep>& steps_of(const SubjectId& subject) const;
  void forget_kept(Instant at);
  void handle(const Event& event);
  void fired(const Event& event, const Fired& fire);
  void act_on(const Key& key, const Fired& fire);
  void log_hang(const TrackedSubject& tracked, std::uint32_t step);
  void look_at_slurm(const std::vector<AllocatedJob>& jobs);
  void choose_steps();
  void read_kept();
  void write_kept();
  void keep_as_before(const TrackedSubject& tracked);
  void answer_for(const slurm::Allocation& job, const std::string& rule, slurm::Answer& answer) const;
  std::optional<bool> leads(const Key& key);
  void ask_nodes_early(const Key& key);
  std::vector<std::unique_ptr<Action>> actions_of(const Key& key, const TrackedSubject& tracked,
                                                  const ActionOption& word);
  bool spares_slurm_job(const TrackedSubject& tracked, const ActionOption& word);
  void add_slurm_actions(const Key& key, const TrackedSubject& tracked, const ActionOption& word,
                         std::vector<std::unique_ptr<Action>>& made);
  void start_again(std::uint64_t job, const std::string& id);
  bool keep_until(const SubjectId& id, WallTime until);
  std::string doubt_about(const SubjectId& id) const;
  Instant give_time(const TrackedSubject& tracked, Duration time);
  std::unique_ptr<Action> ending(const Key& key, const TrackedSubject& tracked, const ActionOption& word);
  std::unique_ptr<Action> parking(const Key& key, const TrackedSubject& tracked, const ActionOption& word);
  // `what`: becomes of them, for a person.
  std::vector<GpuProcess> to_end(const Key& key, const std::set<ProcessId>& seen, std::string_view what = "ended");
  std::string works_elsewhere(const TrackedSubject& tracked, std::uint32_t step, const GpuProcess& one) const;
  void done(const Key& key, bool all, bool called_off);
  bool wanted(const Key& key) const;
  bool may_act_on(const Key& key) const;
  void not_confirmed(const Key& key);
  Truth works_again(const TrackedSubject& told, std::uint32_t step) const;
  void confirm(std::function<void()> then) { feed_->confirm(std::move(then), confirms()); }
  bool confirms() const { return !settings_.dry_run || slurm_; }
  void tell(const LogSubject& about, const ActionEvent& action_event);
  void show_progress(Instant at);
  WatchedJob watched(const TrackedSubject& tracked, Instant now) const;
  static LogSubject log_subject(const TrackedSubject& tracked);
  FiringFacts facts(const TrackedSubject& tracked, const Fired& fire, std::uint32_t step) const;
  std::string announced(const Key& key, Duration held) const;
  std::string keep_command(const TrackedSubject& tracked) const;
  static std::set<uid_t> users_of(const TrackedSubject& tracked);
  bool may_keep(uid_t user, const TrackedSubject& tracked) const;
  static bool is_named(const TrackedSubject& tracked, const std::string& target);

  EachSettings settings_;
  World& world_;
  Loop& loop_;
  Sink& sink_;
  SubjectTracker tracker_;
  Engine engine_;
  std::optional<Feed> feed_;
  std::optional<Control> control_;
  std::optional<Control> keep_control_;
  std::vector<GpuUse> uses_;
  Recorder recorder_;
  JobShares shares_;
  std::optional<SlurmJobs> slurm_;
  std::optional<slurm::Leaders> leaders_;
  std::map<SubjectId, std::vector<EachStep>> own_steps_;                  // of jobs whose users asked for some
  std::map<std::uint64_t, std::unique_ptr<slurm::StartAgain>> starting_;  // jobs that were requeued
  std::map<Key, std::shared_ptr<slurm::AskNodes>> asking_;  // nodes of jobs whose step fired and is being confirmed
  std::map<Key, Acting> acting_;
  std::map<std::string, Kept> kept_;             // by the subject's key
  std::map<std::string, WallTime> kept_before_;  // by its id: until when a watcher before us gave it time
  std::map<SubjectId, Unanswered> unanswered_;   // verbs that Slurm may still do
  std::set<Key> cancelled_;                      // of those that nothing was said of yet
  std::map<Key, bool> unsaid_;                   // fired, and nothing was said of that yet; true: it was called off
  std::set<Key> not_confirmed_;                  // said, of stretches that go on
  std::set<std::string> said_;
  std::set<std::pair<std::string, std::string>> spared_;  // said, of which subject and action
  std::string users_trouble_;
  SessionEnd end_;
};

}  // namespace lull
