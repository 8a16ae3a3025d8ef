#pragma once
// Watching many at once: each GPU, or each job that has one, is judged by itself and acted on by itself, for as long as
// we run. What one does or does not do never touches another: each has its own streaks, its own ladder of rungs, its
// own actions under way and its own fresh yes before each of them.
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

#include "act/executor.h"
#include "base/exit_status.h"
#include "engine/engine.h"
#include "jobs/roster.h"
#include "session/control.h"
#include "session/feed.h"
#include "session/hours.h"
#include "session/sink.h"
#include "session/world.h"

namespace lull {

struct EachRung {
  Rule when;
  std::vector<ActionWord> actions;
};

struct EachSettings {
  RosterOptions who;
  std::vector<EachRung> rungs;  // the ladder
  std::optional<Rule> arm = {};
  std::string gpus;
  Duration delay{};
  Duration every = std::chrono::seconds(5);
  WhenMissing missing = WhenMissing::unknown;
  Hours hours;  // in which something may be done
  Duration keep_at_most = std::chrono::hours(24);
  ActionOptions how;
  Executor::Retries retries;
  bool require_gpu = false;
  bool dry_run = false;
  bool controlled = true;  // listens to `lull watch --cancel` and `lull keep`
};

// How `lull keep` asks: what for (empty: all that is mine), and how much time.
std::string keep_question(const std::string& target, Duration time);
std::optional<std::pair<std::string, Duration>> read_keep_question(const std::string& question);

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

 private:
  using Key = std::pair<SubjectId, std::uint32_t>;  // subject and rung
  struct Acting {
    std::vector<std::unique_ptr<Action>> actions;
    std::unique_ptr<Executor> executor;
    Whom whom;
  };
  struct Kept {
    std::optional<Instant> since;  // the first time it was asked for since it last worked
    Instant until{};
    std::set<uid_t> users;  // for whom: another user's job on the same GPU has asked for nothing
  };

  Result<> prepare();
  Policy policy_to_read() const;
  void listen();
  void on_signal(const signalfd_siginfo& info);
  void on_sample(const Snapshot& snapshot, const Scope& scope);
  void say_about_scope();
  void put_off(Instant at);
  void forget_kept(Instant at);
  void handle(const Event& event);
  void fired(const Event& event, const Fired& fire);
  void act_on(const Key& key, const Fired& fire);
  std::unique_ptr<Action> ending(const Key& key, const Member& member, const ActionWord& word);
  std::vector<Holder> to_end(const Key& key, const std::set<std::pair<pid_t, std::uint64_t>>& seen);
  std::string works_elsewhere(const Key& key, const Member& member, const Holder& one) const;
  void done(const Key& key, bool all, bool called_off);
  bool wanted(const Key& key) const;
  bool works_again(const std::string& member, std::uint32_t rung) const;
  void confirm(std::function<void()> then);
  void ask_for_confirmation();
  void tell(const Whom& whom, const News& news);
  void show_progress(Instant at);
  static Whom whom(const Member& member);
  FiringFacts facts(const Member& member, const Fired& fire, std::uint32_t rung) const;
  std::string announced(std::uint32_t rung) const;
  static std::set<uid_t> users_of(const Member& member);
  bool may_keep(uid_t user, const Member& member) const;
  static bool is_named(const Member& member, const std::string& target);

  EachSettings settings_;
  World& world_;
  Loop& loop_;
  Sink& sink_;
  Roster roster_;
  Engine engine_;
  std::optional<Feed> feed_;
  std::optional<Control> control_;
  std::optional<Control> keep_control_;
  std::vector<Card> cards_;
  std::map<Key, Acting> acting_;
  std::map<std::string, Kept> kept_;  // by the member's key
  std::vector<std::function<void()>> confirming_;
  std::vector<std::function<void()>> to_confirm_;
  std::set<std::string> said_;
  std::string scope_trouble_;
  SessionEnd end_;
};

}  // namespace lull
