#pragma once
// Calls at the beginning and then on a grid of time from there: being late once does not shift the others, and what was
// missed (we were stopped) is missed. The one tick loop of all commands that sample again and again.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "loop/loop.h"

namespace lull {

class Ticker {
 public:
  Ticker(Loop& loop, Duration every, std::function<void(std::uint64_t tick)> on_tick)
      : loop_(loop), every_(every), on_tick_(std::move(on_tick)) {}
  Ticker(const Ticker&) = delete;
  Ticker& operator=(const Ticker&) = delete;
  ~Ticker() { stop(); }

  // Ticks now, and every interval from now. Again: a new grid.
  void begin() {
    stop();
    start_ = loop_.now();
    next_ = 0;
    tick();
  }
  // The grid of a start that lies behind us, from its next point on.
  void follow(Instant start) {
    stop();
    start_ = start;
    next_ = static_cast<std::uint64_t>((loop_.now() - start_) / every_) + 1;
    wait();
  }
  void stop() {
    if (timer_) loop_.cancel(*timer_);
    timer_.reset();
  }

 private:
  void tick() {
    const auto passed = static_cast<std::uint64_t>((loop_.now() - start_) / every_);
    const std::uint64_t now = std::max(std::exchange(next_, std::max(next_, passed) + 1), passed);
    wait();
    on_tick_(now);
  }
  void wait() {
    timer_ = loop_.at(start_ + static_cast<std::int64_t>(next_) * every_, [this] { tick(); });
  }

  Loop& loop_;
  Duration every_;
  std::function<void(std::uint64_t)> on_tick_;
  Instant start_{};
  std::uint64_t next_ = 0;
  std::optional<Loop::TimerId> timer_;
};

}  // namespace lull
