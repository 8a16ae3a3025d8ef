#pragma once
// The Loop waits for everything at once (epoll) and calls whoever asked: readable descriptors (a pidfd when its process
// ends, an eventfd, inotify), signals as data (signalfd), and points in time (timerfd on the clock that counts through
// suspend). One thread, no locks; a handler may add, forget or stop anything.
//
// A warped loop runs on a ManualClock: it sets the clock to the time of its next timer instead of sleeping until then.

#include <sys/signalfd.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace lull {

enum class Interest : std::uint8_t {
  readable,
  priority,  // "something changed" of files like cgroup.events
  edge,      // readable, told once for each time it becomes so
};

class Loop {
 public:
  using Handler = std::function<void()>;
  using SignalHandler = std::function<void(const signalfd_siginfo&)>;
  using TimerId = std::pair<Instant, std::uint64_t>;

  static Result<std::unique_ptr<Loop>> create(const Clock& clock);
  static Result<std::unique_ptr<Loop>> create_warped(ManualClock& clock);

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop();

  const Clock& clock() const { return clock_; }
  Instant now() const { return clock_.now(); }

  // Called as long as there is something to read. The descriptor stays its
  // owner's, who forgets it here before closing it.
  Result<> on_ready(int fd, Handler handler, Interest interest = Interest::readable);
  void forget(int fd);

  // Blocks the signals in this thread (threads started later inherit that) and
  // hands them over as data. Again with another set: replaces the first one. Those that whoever
  // started us has made us ignore (nohup, a shell's &) stay ignored, but for SIGCHLD.
  Result<> on_signals(const std::vector<int>& numbers, SignalHandler handler);

  // A timer fires once, never early. A timer in the past fires at the next turn.
  TimerId at(Instant when, Handler handler);
  TimerId in(Duration delay, Handler handler) { return at(now() + delay, std::move(handler)); }
  void cancel(TimerId timer) { timers_.erase(timer); }
  // Of something that we may be called from inside of: it goes when the stack is empty.
  template <class T>
  void destroy_later(T gone) {
    in(Duration::zero(), [kept = std::make_shared<T>(std::move(gone))] {});
  }

  Result<> run();       // until stop()
  Result<bool> turn();  // one round; false: nothing is left that could ever happen, or stopped
  void stop() { stopped_ = true; }
  bool stopped() const { return stopped_; }

 private:
  struct Source {
    std::uint32_t generation = 0;
    std::shared_ptr<Handler> handler;
  };

  Loop(const Clock& clock, ManualClock* warped) : clock_(clock), warped_(warped) {}
  static Result<std::unique_ptr<Loop>> make(const Clock& clock, ManualClock* warped);
  Result<int> wait();
  Result<> set_alarm();
  void run_due_timers();
  void read_signals();

  const Clock& clock_;
  ManualClock* warped_;  // null: real time
  Fd epoll_;
  Fd alarm_;  // timerfd
  Instant alarm_at_ = Instant::max();
  Fd signals_;
  SignalHandler on_signal_;
  std::unordered_map<int, Source> sources_;
  std::map<TimerId, Handler> timers_;
  std::uint64_t next_timer_ = 0;
  std::uint32_t next_generation_ = 0;
  bool stopped_ = false;
};

// One call at a time: setting it again replaces the one before, and destroying it cancels it.
class Timer {
 public:
  explicit Timer(Loop& loop) : loop_(loop) {}
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  ~Timer() { cancel(); }

  void at(Instant when, Loop::Handler handler) {
    cancel();
    id_ = loop_.at(when, [this, handler = std::move(handler)] {
      id_.reset();
      handler();
    });
  }
  void in(Duration delay, Loop::Handler handler) { at(loop_.now() + delay, std::move(handler)); }
  void cancel() {
    if (id_) loop_.cancel(*std::exchange(id_, {}));
  }
  explicit operator bool() const { return id_.has_value(); }

 private:
  Loop& loop_;
  std::optional<Loop::TimerId> id_;
};

// Calls at the beginning and then on a grid of time from there: being late once does not shift the others, and what was
// missed (we were stopped) is missed. The one tick loop of all commands that sample again and again.
class Ticker {
 public:
  Ticker(Loop& loop, Duration every, std::function<void(std::uint64_t tick)> on_tick)
      : loop_(loop), every_(every), on_tick_(std::move(on_tick)) {}

  // Ticks now, and every interval from now. Again: a new grid.
  void begin();
  // The grid of a start that lies behind us, from its next point on.
  void follow(Instant start);
  void stop() { timer_.cancel(); }

 private:
  void tick();
  void wait();

  Loop& loop_;
  Duration every_;
  std::function<void(std::uint64_t)> on_tick_;
  Instant start_{};
  std::uint64_t next_ = 0;
  Timer timer_{loop_};
};

}  // namespace lull
