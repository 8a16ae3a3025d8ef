#include "act/ends_work.h"

namespace lull {

void EndsWork::take_last_look(std::function<bool()> still_waits, std::function<void()> kill) {
  last_look_([this, still_waits = std::move(still_waits), kill = std::move(kill)](bool works) {
    if (!still_waits()) return;
    if (!works) return kill();
    const Done done = std::move(done_);
    (void)undo();
    tell_(WorksAgain{});
    done({.called_off = true});
  });
}

void EndsWork::wait_until(Instant at, std::function<void()> then) {
  timer_ = loop_.at(at, [this, then = std::move(then)] {
    timer_.reset();
    then();
  });
}

void EndsWork::stop_waiting() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

}  // namespace lull
