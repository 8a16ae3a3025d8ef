#pragma once
// Watching GPUs until a rule fires, then acting, once (or again and again with --repeat). `lull watch` and the drop-ins
// gpu_sentinel and gpu_idle_timeout without a command are sets of settings and sinks of this one session.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"
#include "session/control.h"
#include "session/logger.h"
#include "session/session.h"

namespace lull {

struct WatchSettings : ActingSettings {
  SessionSettings common;
  bool of_job = false;  // our own CUDA_VISIBLE_DEVICES says which GPUs count
  bool repeat = false;
  std::vector<ActionOption> actions;  // an exit, if any, is the last
};

class WatchSession final : public Session {
 public:
  WatchSession(WatchSettings settings, World& world, Sink& sink);

  SessionEnd run();
  // What `lull watch --cancel` of that person gets for an answer.
  std::string on_cancel(const std::string& who);

 private:
  Result<> prepare();
  void on_signal(const signalfd_siginfo& info);
  void sense(const Snapshot& snapshot) override;
  void end_with_the_work();
  void fired(const Fired& fired) override;
  void tell(const ActionEvent& action_event) override;
  void acted(bool all, bool called_off) override;
  bool restart_count(const std::string& who);
  std::vector<MemberView> members();
  std::vector<pid_t> who_hangs() override;

  WatchSettings settings_;
  std::optional<Control> control_;
  std::vector<std::unique_ptr<Action>> actions_;
  Recorder recorder_;
  std::optional<int> exit_status_;
  JobSensor work_sensor_;
};

// What `lull run` and `lull watch` are told alike, each value as it was written: which rule, on which GPUs, how often,
// and how much is said; and the settings that come of it.
struct WatchOptions {
  std::string idle;
  std::string arm = {};
  std::string delay = "0s";
  std::string every = "1s";
  std::string gpus = {};
  std::vector<std::string> also = {};
  std::string missing = "unknown";
  std::vector<std::string> signal_from = {};
  LogOptions console = {};
};

Result<> settle_watch(const WatchOptions& options, const Settings& known, SessionSettings& settings);
// "util < 1 for 30m (idle)", or the rule alone where it was given as one.
std::string rule_text(const Settings& known, const std::string& given, const Rule& rule);
// What is valid but surely not meant, as a rule without `for`: a line each.
void log_remarks(const Logger& logger, const Rule& idle);

}  // namespace lull
