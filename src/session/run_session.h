#pragma once
// A job under watch, from its start to our exit status: starts the command with our terminal, forwards signals, and
// when the engine says so ends the whole tree. `lull run` and the drop-in gpu_idle_timeout are two sets of settings and
// two sinks of this one session.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "act/evidence.h"
#include "act/facts.h"
#include "base/exit_status.h"
#include "session/session.h"

namespace lull {

// What becomes of processes of the job that are left when its main process has ended by itself.
enum class Leftovers : std::uint8_t { unseen, keep, end };  // unseen: not even looked for

struct RunSettings {
  RunSettings() { common.delay = std::chrono::minutes(1); }
  SessionSettings common;
  std::vector<std::string> command;

  std::string evidence;
  std::string on_idle;
  Duration on_idle_limit = std::chrono::seconds(30);
  Ending::Options ending;
  std::optional<ParkOptions> park = {};  // it is parked, not ended
  unsigned restarts = 0;
  Duration backoff = std::chrono::seconds(30);
  bool use_cgroup = true;
  Leftovers leftovers = Leftovers::unseen;
  int idle_status = kExitIdle;
  int refused_status = kExitFailure;  // with require_gpu
};

class RunSession final : public Session {
 public:
  RunSession(RunSettings settings, World& world, Sink& sink);

  SessionEnd run();

 private:
  enum class Phase : std::uint8_t { watching, firing, parked, ending, checking, backoff, leaving, done };

  Result<> prepare();
  std::optional<SessionEnd> start_job();
  void finish(SessionEnd how);

  void on_signal(const signalfd_siginfo& info);
  void on_job_ended(const ExitStatus& status);
  void on_job_stopped(int signal);

  bool wants_samples() const override { return phase_ == Phase::watching || phase_ == Phase::firing; }
  void sense(const Snapshot& snapshot) override;
  void list_members(Instant at);
  void look_at_stopped();
  void fired(const Fired& fired) override;
  void time_is_up(const TimeUp& up) override;
  void tell(const ActionEvent& action_event) override;
  std::vector<pid_t> who_hangs() override;
  void acted(bool all, bool called_off) override;

  std::string next_text(bool for_time = false) const;
  void look_at_parked();
  void tree_is_gone();
  void check_memory();
  void after_ending();
  void leave(SessionEnd how);
  void log_leftovers(const Snapshot* snapshot);

  RunSettings settings_;
  std::unique_ptr<Job> job_;
  std::unique_ptr<Action> evidence_;
  std::unique_ptr<Action> hook_;
  std::unique_ptr<Action> ending_;
  std::unique_ptr<Action> parking_;
  bool job_stopped_ = false;
  bool worker_stopped_ = false;  // another process of the job, with a context; or its cgroup is frozen

  std::vector<ProcessEntry> members_;
  std::vector<ProcessEntry> members_before_;
  Instant members_at_{};
  double members_apart_ = 0;  // seconds
  Recorder recorder_;

  Phase phase_ = Phase::watching;
  std::map<DeviceId, double> memory_at_start_;  // bytes
  std::map<DeviceId, double> memory_at_fire_;
  bool memory_wanted_ = false;
  int memory_tries_ = 0;
  unsigned restarts_done_ = 0;
  bool ended_for_time_ = false;
  std::optional<TimeUp> time_up_;      // while an ending was under way
  std::optional<SessionEnd> own_end_;  // of a job that has ended by itself
  std::unique_ptr<SampleSource> leftover_lists_;
};

}  // namespace lull
