#pragma once
// A job under watch, from its start to our exit status: starts the command with our
// terminal, forwards signals, samples the GPUs, and when the Watcher says so ends the
// whole tree. `lull run` and the drop-in gpu_idle_timeout are two sets of settings and
// two voices of this one session.

#include <csignal>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "act/cgroup.h"
#include "act/children.h"
#include "act/spawn.h"
#include "act/terminal.h"
#include "act/tree.h"
#include "cli/also.h"
#include "cli/command.h"
#include "cli/evidence.h"
#include "cli/facts.h"
#include "cli/feed.h"
#include "cli/helper.h"
#include "cli/say.h"
#include "engine/watcher.h"
#include "loop/loop.h"
#include "sense/job.h"

namespace lull {

struct RunSettings {
  std::vector<std::string> command;
  Policy policy;
  std::string gpus;
  Also also;  // work outside the tree that counts as the job's
  Duration delay = std::chrono::minutes(1);
  Duration every = std::chrono::seconds(5);
  std::optional<Duration> max_time;
  WhenMissing missing = WhenMissing::unknown;
  bool require_gpu = false;

  std::string evidence;
  std::string on_idle;
  Duration on_idle_limit = std::chrono::seconds(30);
  Ending::Options ending;
  unsigned restarts = 0;
  Duration backoff = std::chrono::seconds(30);
  bool dry_run = false;
  bool use_cgroup = true;
  int idle_status = kExitIdle;
  int refused_status = kExitFailure;  // with require_gpu
};

// What is told to people, and in whose words.
class RunVoice {
 public:
  RunVoice() = default;
  RunVoice(const RunVoice&) = delete;
  RunVoice& operator=(const RunVoice&) = delete;
  virtual ~RunVoice() = default;

  virtual void started(const RunSettings&) {}
  virtual void ticked(std::uint64_t /*tick*/) {}  // counted from the start of the job, which is 0
  virtual void sampled(const Snapshot&, const Watcher&) {}
  virtual void said(const Say& say) = 0;
  virtual void firing(const FiringFacts& facts, bool dry_run) = 0;
  virtual void note(Level level, std::string_view event, const std::string& text) = 0;
};

class RunSession {
 public:
  RunSession(RunSettings settings, RunVoice& voice, const Clock& clock);
  RunSession(const RunSession&) = delete;
  RunSession& operator=(const RunSession&) = delete;
  ~RunSession();

  int run();  // the exit status

 private:
  enum class Phase : std::uint8_t { watching, firing, ending, checking, backoff, done };

  Result<> prepare();
  std::optional<int> refuse_without_gpus();
  std::optional<int> start_job();
  void make_feed();
  void finish(int status);

  void on_signal(const signalfd_siginfo& info);
  void forward(const signalfd_siginfo& info);
  void signal_group(int number);
  bool has_locked_terminal() const;
  void on_job_ended(const ExitStatus& status);
  void on_job_stopped(int signal);

  void on_tick(std::uint64_t tick);
  void on_sample(Snapshot& snapshot, const Scope& scope);
  void sense_job(Snapshot& snapshot);
  void fill_job_signals(Snapshot& snapshot);
  void look_at_stopped();
  void say_about_scope();
  void handle(const std::vector<Intent>& intents);
  void set_time_limit();

  FiringFacts facts(std::string event, Explanation why) const;
  std::string next_in_words(bool for_time = false) const;
  void fire(Fire fire);
  void collect_evidence();
  void run_hook();
  void confirm();
  void confirmed();
  void begin_ending();
  void step_ending();
  void tree_is_gone();
  void check_memory(int tries);
  void after_ending();

  RunSettings settings_;
  RunVoice& voice_;
  const Clock& clock_;
  InheritedSignals signals_;
  Terminal terminal_;
  std::unique_ptr<Loop> loop_;
  Children children_;
  std::unique_ptr<Helpers> helpers_;
  std::set<Tree::Name> earlier_;

  Cgroup cgroup_;
  Process job_;
  Tree tree_;
  bool job_stopped_ = false;
  bool worker_stopped_ = false;  // another process of the job, with a context; or its cgroup is frozen
  bool stop_said_ = false;
  bool freeze_said_ = false;
  std::optional<ExitStatus> job_status_;

  std::optional<Feed> feed_;
  std::optional<Watcher> watcher_;
  JobSensor job_sensor_;
  bool rule_wants_job_ = false;
  std::string uncounted_said_;
  std::vector<ProcessEntry> members_;
  std::vector<ProcessEntry> members_before_;
  Instant members_at_{};
  double members_apart_ = 0;  // seconds
  Recorder recorder_;
  std::string scope_trouble_;

  Phase phase_ = Phase::watching;
  std::optional<Loop::TimerId> time_limit_;
  std::optional<FiringFacts> firing_;
  std::optional<Ending> ending_;
  std::optional<Loop::TimerId> ending_timer_;
  std::vector<std::pair<std::string, double>> memory_at_start_;  // uuid, bytes
  std::vector<std::pair<std::string, double>> memory_at_fire_;
  bool memory_wanted_ = false;
  int memory_tries_ = 0;
  unsigned restarts_done_ = 0;
  bool ended_for_time_ = false;
  bool acting_at_once_ = false;  // nothing came between the sample that fired and the end
  int status_ = 0;
};

}  // namespace lull
