#include "act/executor.h"

#include <algorithm>
#include <utility>

#include "base/random.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// A confirmation may be this old: no driver samples more often. Where a busy machine keeps us from being that quick,
// each further one may be older, up to the sample period of the slowest driver: until then there is no newer data.
constexpr Duration kRecent = 100ms;
constexpr Duration kLongestRecent = 1s;
constexpr unsigned kMostDoublings = 4;

// How long after "not now" it is tried again: twice as long each time, and never at the same moment as others.
constexpr Duration kShortestPutOff = 1s;
constexpr Duration kLongestPutOff = 60s;
constexpr double kMostJitter = 0.5;

double random_share() { return static_cast<double>(random_bits() >> 11) * 0x1p-53; }

}  // namespace

Executor::Executor(Loop& loop, std::vector<Action*> actions, Retries retries, FiringFacts facts, bool confirmed,
                   Calls calls)
    : loop_(loop),
      actions_(std::move(actions)),
      retries_(retries),
      facts_(std::move(facts)),
      confirmed_(confirmed),
      calls_(std::move(calls)) {}

void Executor::finish(bool called_off) {
  if (std::exchange(over_, true)) return;
  timer_.cancel();
  calls_.done(all_worked_, called_off);
}

void Executor::next() {
  tries_ = late_ = put_off_ = 0;
  if (at_ >= actions_.size()) return finish(false);
  attempt();
}

void Executor::attempt() {
  if (broken_ || !cancelled_by_.empty()) return leave_off();
  const bool confirmed = std::exchange(confirmed_, false);
  if (confirmed || !actions_[at_]->requires_confirmation()) return attempt_now();
  when_confirmed([this] { attempt_now(); });
}

void Executor::leave_off() {
  if (cancelled_by_.empty())
    calls_.tell(NoLongerWanted{});
  else
    calls_.tell(Cancelled{cancelled_by_});
  finish(true);
}

void Executor::attempt_now() {
  ++tries_;
  if (put_off_ == 0) calls_.tell(Attempted{actions_[at_]->text(), tries_});
  begin();
}

Duration Executor::longest_age() const {
  return std::min<Duration>(kLongestRecent, kRecent * (1 << std::min(late_, kMostDoublings)));
}

void Executor::when_confirmed(std::function<void()> then) {
  calls_.confirm([this, here = here_, then = std::move(then)] {
    if (!*here || over_) return;
    if (!broken_ && cancelled_by_.empty() && calls_.still_wanted()) return then();
    if (running_) (void)actions_[at_]->undo();
    leave_off();
  });
}

// The last one was too old when it was to be used.
void Executor::confirm_again(std::function<void()> then) {
  ++late_;
  when_confirmed(std::move(then));
}

void Executor::pre_kill_check(std::function<void(Truth)> answer) {
  if (worked_) return answer(Truth::yes);      // also where no further sample comes
  if (std::exchange(looked_, false)) ++late_;  // its answer was too old
  (calls_.look ? calls_.look : calls_.confirm)([this, here = here_, answer = std::move(answer)] {
    if (!*here || over_) return;
    const Truth works = worked_ ? Truth::yes : calls_.works_again();
    looked_ = works != Truth::unknown;
    answer(works);
  });
}

Action::Leave Executor::leave() {
  Action::Leave leave;
  leave.holds = [this, here = here_] {
    if (!*here || over_) return false;
    if (calls_.age && (!recent() || !calls_.still_wanted())) return false;
    return !calls_.acting || calls_.acting();
  };
  leave.may_kill = [this, here = here_] {
    return *here && !over_ && recent() && (!calls_.works_again || (!worked_ && calls_.works_again() == Truth::no));
  };
  leave.until = [this] { return loop_.now() + longest_age() - (calls_.age ? calls_.age() : Duration::zero()); };
  leave.again = [this, here = here_](std::function<void()> then) {
    if (*here && !over_) confirm_again(std::move(then));
  };
  return leave;
}

void Executor::begin() {
  if (actions_[at_]->requires_confirmation() && !recent()) return confirm_again([this] { begin(); });
  running_ = true;
  worked_ = looked_ = false;
  actions_[at_]->ask_before_kill(!calls_.works_again ? Action::PreKillCheck()
                                                     : [this, here = here_](std::function<void(Truth)> answer) {
                                                         if (*here && !over_) pre_kill_check(std::move(answer));
                                                       });
  actions_[at_]->ask_before_acting(leave());
  actions_[at_]->start(
      facts_,
      [this, here = here_](const Outcome& how) {
        if (*here && !over_) outcome(how);
      },
      [this, here = here_, tell = calls_.tell](const ActionEvent& event) {
        // What comes after it can say where it is.
        if (const auto* evidence = std::get_if<EvidenceWritten>(&event); evidence != nullptr && *here)
          facts_.evidence = evidence->page.empty() ? evidence->folder : evidence->page;
        tell(event);
      });
}

void Executor::outcome(const Outcome& how) {
  running_ = false;
  const Action& action = *actions_[at_];
  if (how.called_off) return finish(true);
  if (how.not_now) return put_off(how);
  if (!how.ok) {
    const bool again = tries_ <= retries_.most && action.may_be_repeated();
    calls_.tell(Failed{action.text(), how.trouble, again ? std::optional(retries_.after) : std::nullopt,
                       !action.requires_confirmation()});
    if (again) return timer_.in(retries_.after, [this] { attempt(); });
    all_worked_ = false;
  }
  ++at_;
  next();
}

void Executor::put_off(const Outcome& how) {
  --tries_;
  const Duration longer = std::min<Duration>(kLongestPutOff, kShortestPutOff * (1 << std::min(put_off_, 6U)));
  const Duration jitter(static_cast<std::int64_t>(static_cast<double>(longer.count()) * kMostJitter * random_share()));
  const bool said_when = how.again_in && *how.again_in > longer;
  const Duration wait = said_when ? *how.again_in + jitter : std::min(kLongestPutOff, longer + jitter);
  calls_.tell(PutOff{actions_[at_]->text(), wait, how.trouble, put_off_++ == 0});
  timer_.in(wait, [this] { attempt(); });
}

bool Executor::undo() { return !over_ && (!running_ || actions_[at_]->undo()); }

void Executor::call_off() {
  if (ends_work()) return;  // its pre-kill check decides
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
  cancelled_by_ = who;
  leave_off();
  return true;
}

void Executor::look() {
  if (!over_ && running_) actions_[at_]->look();
}

void Executor::judged() {
  if (spares_who_works() && calls_.works_again() == Truth::yes) worked_ = true;
}

std::optional<Instant> Executor::waits_until() const {
  return over_ || !running_ ? std::nullopt : actions_[at_]->waits_until();
}

}  // namespace lull
