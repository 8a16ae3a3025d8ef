#pragma once
// What `lull watch --do …` may do, from the word on the command line to its being done:
// parsed, checked before anything is watched (the process is there and ours to signal,
// we may power off, curl is installed), then run in order in the loop, each until it has
// worked or was retried as often as allowed. What has worked is not done again.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "act/power.h"
#include "act/spawn.h"
#include "act/tree.h"
#include "base/result.h"
#include "cli/facts.h"
#include "cli/helper.h"
#include "cli/say.h"
#include "loop/loop.h"

namespace lull {

struct Action {
  enum class Kind : std::uint8_t { exit, kill, exec, power, determined, notify };
  Kind kind = Kind::exit;
  std::string text;      // as it was written
  std::string argument;  // behind the '='
  int status = 0;        // of exit
  Power power = Power::off;
};

// exit[=STATUS], kill=PID|PGID:N|parent|container, exec=CMD, shutdown, reboot, determined, notify=URL
Result<Action> parse_action(std::string_view text);

// "12 13 (stuck in the kernel), 14 (not ours to end)": those who outlived even SIGKILL.
std::string left_in_words(const std::vector<ProcessEntry>& left);
// Why an ending that is over cannot be called one; empty where everybody is gone.
std::string trouble_of(const Ending& ending);

struct ReadyAction {
  Action action;
  std::vector<std::string> command;  // of those that run one
  Process target;                    // of kill, where it is one process
  std::shared_ptr<Tree> tree;        // of kill
};
Result<ReadyAction> prepare_action(Action action, const InheritedSignals* signals);

struct ActionOptions {
  unsigned retries = 3;
  Duration retry_after = std::chrono::seconds(10);
  Duration limit = std::chrono::seconds(30);  // for a command; at most 10 s for a notification
  Ending::Options ending;
  std::optional<Duration> warn;  // before shutdown and reboot
  Root root = Root::machine();
};

// One run through the actions after a firing.
class ActionRun {
 public:
  struct Calls {
    std::function<void(Level, std::string_view event, const std::string& text)> say;
    std::function<bool()> still_wanted;  // the rule that fired still holds
    // Calls back after a new sample has been judged. Before every attempt but one that follows the firing at once.
    std::function<void(std::function<void()>)> confirm;
    bool fresh = false;  // the sample that fired is of now
    // all: every action worked; not if some failed. called_off: they were not done to the end.
    std::function<void(bool all, bool called_off)> done;
  };
  ActionRun(Loop& loop, Helpers& helpers, std::vector<ReadyAction>& actions, ActionOptions options,
            const InheritedSignals* signals, FiringFacts facts, Calls calls);
  ActionRun(const ActionRun&) = delete;
  ActionRun& operator=(const ActionRun&) = delete;
  ~ActionRun();

  void start() { next(); }
  // Cancels what has not been done yet. False: there is nothing left to cancel.
  bool cancel(const std::string& who);
  // During the warning before a power action: how long until then.
  std::optional<Instant> powers_at() const { return powers_at_; }
  // At each sample: calls off what is no longer wanted.
  void look();

 private:
  void next();
  void attempt();
  void attempt_now();
  void call_off();
  void attempt_kill();
  void step_kill();
  void warn_then_run();
  void run_command(const ReadyAction& ready, Duration limit, std::string input);
  void outcome(bool ok, const std::string& trouble);
  void finish(bool called_off);
  void later(Duration delay, void (ActionRun::*then)());

  Loop& loop_;
  Helpers& helpers_;
  std::vector<ReadyAction>& actions_;
  ActionOptions options_;
  const InheritedSignals* signals_;
  FiringFacts facts_;
  Calls calls_;
  std::size_t at_ = 0;
  unsigned tries_ = 0;
  bool all_worked_ = true;
  bool over_ = false;
  bool running_ = false;     // a command or a kill is under way: too late to cancel
  bool confirming_ = false;  // a new sample is awaited
  std::optional<Instant> powers_at_;
  std::optional<Loop::TimerId> timer_;
  std::optional<Ending> ending_;
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // false once we are gone
};

}  // namespace lull
