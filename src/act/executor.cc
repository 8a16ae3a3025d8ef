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
  if (broken_) return call_off();
  const bool fresh = std::exchange(fresh_, false);
  if (fresh || !actions_[at_]->needs_a_fresh_yes()) return attempt_now();
  calls_.confirm([this, here = here_] {
    if (!*here || over_) return;
    if (!broken_ && calls_.still_wanted()) return attempt_now();
    calls_.tell(NoLongerWanted{});
    finish(true);
  });
}

void Executor::attempt_now() {
  running_ = true;
  calls_.tell(Attempted{actions_[at_]->text(), ++tries_});
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
  if (!undo()) {
    broken_ = broken_ || (!over_ && !actions_[at_]->ends_work());
    return;
  }
  calls_.tell(NoLongerWanted{});
  finish(true);
}

bool Executor::cancel(const std::string& who) {
  if (!undo()) return false;
  calls_.tell(Cancelled{who});
  finish(true);
  return true;
}

void Executor::look() {
  if (!over_ && running_) actions_[at_]->look();
}

std::optional<Instant> Executor::waits_until() const {
  return over_ || !running_ ? std::nullopt : actions_[at_]->waits_until();
}

}  // namespace lull
