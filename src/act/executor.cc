#include "act/executor.h"

#include <utility>

namespace lull {

Executor::Executor(Loop& loop, std::vector<Action*> actions, Retries retries, FiringFacts facts, bool fresh,
                   Calls calls)
    : loop_(loop),
      actions_(std::move(actions)),
      retries_(retries),
      facts_(std::move(facts)),
      fresh_(fresh),
      calls_(std::move(calls)) {}

Executor::~Executor() {
  *here_ = false;
  if (timer_) loop_.cancel(*timer_);
}

void Executor::finish(bool called_off) {
  if (std::exchange(over_, true)) return;
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  calls_.done(all_worked_, called_off);
}

void Executor::next() {
  tries_ = 0;
  if (at_ >= actions_.size()) return finish(false);
  attempt();
}

void Executor::attempt() {
  if (broken_ || !cancelled_by_.empty()) return leave_off();
  const bool fresh = std::exchange(fresh_, false);
  if (fresh || !actions_[at_]->needs_a_fresh_yes()) return attempt_now();
  calls_.confirm([this, here = here_] {
    if (!*here || over_) return;
    if (!broken_ && cancelled_by_.empty() && calls_.still_wanted()) return attempt_now();
    leave_off();
  });
}

void Executor::leave_off() {
  if (cancelled_by_.empty())
    calls_.tell(NoLongerWanted{});
  else
    calls_.tell(Cancelled{cancelled_by_});
  finish(true);
}

void Executor::attempt_now() {
  running_ = true;
  worked_ = false;
  calls_.tell(Attempted{actions_[at_]->text(), ++tries_});
  Action::LastLook last_look;
  if (calls_.works_again)
    last_look = [this, here = here_](std::function<void(bool)> answer) {
      calls_.confirm([this, here, answer = std::move(answer)] {
        if (*here && !over_) answer(worked_ || calls_.works_again());
      });
    };
  actions_[at_]->ask_before_kill(std::move(last_look));
  actions_[at_]->start(
      facts_,
      [this, here = here_](const Outcome& how) {
        if (*here && !over_) outcome(how);
      },
      calls_.tell);
}

void Executor::outcome(const Outcome& how) {
  running_ = false;
  const Action& action = *actions_[at_];
  if (how.called_off) return finish(true);
  if (!how.ok) {
    const bool again = tries_ <= retries_.most && action.may_be_repeated();
    calls_.tell(Failed{action.text(), how.trouble, again ? std::optional(retries_.after) : std::nullopt,
                       !action.needs_a_fresh_yes()});
    if (again) {
      timer_ = loop_.in(retries_.after, [this] {
        timer_.reset();
        attempt();
      });
      return;
    }
    all_worked_ = false;
  }
  ++at_;
  next();
}

bool Executor::undo() { return !over_ && (!running_ || actions_[at_]->undo()); }

void Executor::call_off() {
  if (ends_work()) return;  // its last look decides
  if (!undo()) {
    broken_ = broken_ || !over_;
    return;
  }
  leave_off();
}

bool Executor::cancel(const std::string& who) {
  if (!undo()) {
    // What runs goes on, what would come after it does not.
    if (over_ || ends_work() || at_ + 1 >= actions_.size()) return false;
    cancelled_by_ = who;
    return true;
  }
  calls_.tell(Cancelled{who});
  finish(true);
  return true;
}

void Executor::look() {
  if (!over_ && running_) actions_[at_]->look();
}

void Executor::judged() {
  if (spares_who_works() && calls_.works_again()) worked_ = true;
}

std::optional<Instant> Executor::waits_until() const {
  return over_ || !running_ ? std::nullopt : actions_[at_]->waits_until();
}

}  // namespace lull
