#pragma once
// Does the actions of one firing, in order, each until it has worked or was retried as often as allowed; what has
// worked is not done again. Before every step that cannot be undone a new sample has to say yes, whatever came in
// between: a hook, a warning, an action before this one, a pause of ours or of the machine. The facts are those of the
// firing.

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "act/action.h"
#include "act/facts.h"
#include "loop/loop.h"

namespace lull {

class Executor {
 public:
  struct Retries {
    unsigned most = 3;
    Duration after = std::chrono::seconds(10);
  };
  struct Calls {
    Action::Tell tell;
    std::function<bool()> still_wanted;  // the rule that fired still holds
    // By the newest sample it does not; only a known no kills. Null: what is told to end is killed after its grace in
    // any case.
    std::function<Truth()> works_again = nullptr;
    // How old the newest sample is. Telling may take long (a full pipe, a stopped terminal), and so may a stop of ours:
    // whatever came in between, what cannot be undone follows a confirmation at once, or another one. Null: it need
    // not.
    std::function<Duration()> age = nullptr;
    // Calls back after a new sample has been judged that covers a period of the driver's since now.
    std::function<void(std::function<void()>)> confirm;
    // The same for works_again. Null: confirm does it.
    std::function<void(std::function<void()>)> look = nullptr;
    // What cannot be undone follows now. False: it may not, after all. Nullable.
    std::function<bool()> acting = nullptr;
    // all: every action worked. called_off: they were not done to the end.
    std::function<void(bool all, bool called_off)> done;
  };
  // `confirmed`: that was done just now, or nothing needs to be, so the first action may follow at once.
  Executor(Loop& loop, std::vector<Action*> actions, Retries retries, FiringFacts facts, bool confirmed, Calls calls);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor() { *here_ = false; }

  void start() { next(); }
  // Cancels what has not been done yet; within its grace, SIGKILL. False: there is nothing left to cancel.
  bool cancel(const std::string& who);
  bool cancelled() const { return !cancelled_by_.empty(); }
  // It is too late to cancel the ending.
  bool ends_work() const { return !over_ && running_ && actions_[at_]->ends_work(); }
  // Within the grace of one whose work spares it.
  bool spares_who_works() const { return ends_work() && calls_.works_again != nullptr; }
  // The rule ceased to hold: what can be undone is, and nothing more is begun. Should it hold again later, that is
  // another firing.
  void call_off();
  // Something changed: a child ended, a sample came.
  void look();
  // A sample was judged: who is seen to work after its signal is not killed, whatever the pre-kill check shows or does
  // not.
  void judged();
  // During a wait before an action: how long that lasts.
  std::optional<Instant> waits_until() const;

 private:
  void next();
  void attempt();
  void attempt_now();
  void begin();
  void when_confirmed(std::function<void()> then);
  void confirm_again(std::function<void()> then);
  void pre_kill_check(std::function<void(Truth)> answer);
  Action::Leave leave();
  Duration longest_age() const;
  bool recent() const { return !calls_.age || calls_.age() <= longest_age(); }
  void outcome(const Outcome& outcome);
  void put_off(const Outcome& outcome);
  void finish(bool called_off);
  bool undo();
  void leave_off();

  Loop& loop_;
  std::vector<Action*> actions_;
  Retries retries_;
  FiringFacts facts_;
  bool confirmed_;
  Calls calls_;
  std::size_t at_ = 0;
  unsigned tries_ = 0;
  unsigned put_off_ = 0;  // how often this action said "not now"
  unsigned late_ = 0;     // confirmations of this action that were too old when they were to be used
  bool all_worked_ = true;
  bool over_ = false;
  bool running_ = false;  // an action is under way
  bool looked_ = false;   // a pre-kill check had an answer
  bool worked_ = false;   // since the action under way began
  bool broken_ = false;   // the rule ceased to hold while one was that cannot be undone
  std::string cancelled_by_;
  Timer timer_{loop_};
  std::shared_ptr<bool> here_ = std::make_shared<bool>(true);  // false once we are gone
};

}  // namespace lull
