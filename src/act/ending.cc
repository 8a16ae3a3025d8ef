// The second half of tree.h: ending a tree, step by step.

#include <algorithm>
#include <csignal>
#include <utility>

#include "act/tree.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLongestPause = 50ms;
constexpr Duration kKillPause = 2ms;
// As late as a busy machine may let us look. What is beyond, we did not run, and perhaps nobody did.
constexpr Duration kLateness = 100ms;

}  // namespace

std::optional<Instant> Ending::step(Instant now) {
  if (state_ == State::gone || state_ == State::stuck) return std::nullopt;
  if (!begun_) {
    begun_ = true;
    looked_at_ = looks_next_ = now;
    if (options_.signal != 0) {
      signal_first();
      grace_left_ = options_.grace;
    }
  }
  if (!first_kill_) count(now);
  waits_to_kill_ = grace_left_ <= Duration::zero();
  if (waits_to_kill_ && may_kill_) return kill(now);
  if (all_gone()) {
    state_ = State::gone;
    return std::nullopt;
  }
  if (waits_to_kill_) return now + kLongestPause;
  pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
  looks_next_ = now + std::min(pause_, grace_left_);
  return looks_next_;
}

void Ending::signal_first() {
  if (options_.to_tree) signalled_ = tree_.signal(options_.signal, options_.order).reached;
  if (signalled_ != 0) return;
  // To the root alone; or no listing shows it, but its handle works.
  if (root_.signal(options_.signal)) signalled_ = 1;
  if (options_.to_tree && options_.signal != SIGKILL) (void)root_.signal(SIGCONT);
}

void Ending::count(Instant now) {
  const Duration asked = looks_next_ - looked_at_;
  const Duration passed = now - std::exchange(looked_at_, now);
  if (passed <= Duration::zero() || grace_left_ <= Duration::zero()) return;
  const Duration counted = passed > asked + kLateness ? asked : passed;
  if (halted_ < options_.longest_halt && tree_.is_halted()) {
    halted_ += counted;
  } else {
    grace_left_ -= counted;
  }
}

std::optional<Instant> Ending::kill(Instant now) {
  if (!first_kill_) {
    first_kill_ = now;
    killed_ = tree_.members().size();
  }
  state_ = State::killing;
  tree_.kill_pass();
  if (!root_.ended()) (void)root_.signal(SIGKILL);  // its handle works where /proc does not
  if (all_gone()) {
    state_ = State::gone;
    return std::nullopt;
  }
  if (root_.ended() && !tree_.can_look()) {
    state_ = State::unproven;
    return std::nullopt;
  }
  left_ = tree_.members();
  bool newcomers = false;  // forked faster than we looked: strike again at once
  for (const ProcessEntry& one : left_) newcomers |= struck_.emplace(one.pid, one.start_ticks).second;
  if (now - *first_kill_ >= options_.give_up) {
    state_ = State::stuck;
    return std::nullopt;
  }
  return newcomers ? now : now + kKillPause;
}

}  // namespace lull
