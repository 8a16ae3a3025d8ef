#pragma once
// Watching GPUs until a rule fires, then acting, once (or again and again with
// --repeat). `lull watch` and the drop-ins gpu_sentinel and gpu_idle_timeout without a
// command are sets of settings and voices of this one session.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "act/children.h"
#include "act/spawn.h"
#include "cli/actions.h"
#include "cli/also.h"
#include "cli/control.h"
#include "cli/feed.h"
#include "cli/helper.h"
#include "cli/say.h"
#include "engine/watcher.h"
#include "loop/loop.h"
#include "sense/job.h"

namespace lull {

struct WatchSettings {
  Policy policy;
  std::string gpus;
  Also also;  // the work that it is about; empty: the GPUs, whoever uses them
  Duration delay{};
  Duration every = std::chrono::seconds(5);
  WhenMissing missing = WhenMissing::unknown;
  bool require_gpu = false;
  bool of_job = false;  // our own CUDA_VISIBLE_DEVICES says which GPUs count
  bool repeat = false;
  bool dry_run = false;
  std::vector<Action> actions;
  ActionOptions how;
};

// What is told to people, and in whose words.
class WatchVoice {
 public:
  WatchVoice() = default;
  WatchVoice(const WatchVoice&) = delete;
  WatchVoice& operator=(const WatchVoice&) = delete;
  virtual ~WatchVoice() = default;

  virtual void started(const WatchSettings&) {}
  virtual void ticked(std::uint64_t /*tick*/) {}  // counted from the start, which is 0
  // `powers_at`: during a warning, when the machine goes down.
  virtual void sampled(const Snapshot&, const Watcher&, std::optional<Instant> /*powers_at*/) {}
  virtual void said(const Say& say) = 0;
  virtual void firing(const FiringFacts& facts, bool dry_run) = 0;
  virtual void note(Level level, std::string_view event, const std::string& text) = 0;
};

class WatchSession {
 public:
  WatchSession(WatchSettings settings, WatchVoice& voice, const Clock& clock);
  WatchSession(const WatchSession&) = delete;
  WatchSession& operator=(const WatchSession&) = delete;
  ~WatchSession() = default;

  int run();  // the exit status

 private:
  Result<> prepare();
  void on_signal(const signalfd_siginfo& info);
  void on_sample(Snapshot& snapshot, const Scope& scope);
  void say_about_scope();
  void sense_work(Snapshot& snapshot);
  void fire(const Fire& fire);
  void act_on(const Fire& fire);
  bool is_fresh() const;  // the newest sample is of now: neither we nor the machine slept since
  void acted(bool all, bool called_off);
  std::string on_cancel(const std::string& who);
  std::string actions_in_words() const;

  WatchSettings settings_;
  WatchVoice& voice_;
  const Clock& clock_;
  InheritedSignals signals_;
  std::unique_ptr<Loop> loop_;
  Children children_;
  std::unique_ptr<Helpers> helpers_;
  std::optional<Control> control_;
  std::optional<Feed> feed_;
  std::optional<Watcher> watcher_;
  std::vector<ReadyAction> actions_;
  std::unique_ptr<ActionRun> acting_;
  std::string scope_trouble_;
  bool wants_work_ = false;  // the rule looks at cpu, io or quiet
  JobSensor work_sensor_;
  bool uncounted_said_ = false;
  bool stopped_ = false;  // somebody of it, with a context; or its cgroup is frozen
  bool stop_said_ = false;
  bool freeze_said_ = false;
  int status_ = 0;
};

}  // namespace lull
