#pragma once
// Long work beside a session: in a process of its own, at the lowest priority, within limits. The loop goes on
// meanwhile. It ends with us, and when its time is up. It is a fork: only for a program without other threads.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "loop/loop.h"

namespace lull {

struct BackgroundLimits {
  Duration time = std::chrono::minutes(10);
  std::size_t memory = 0;                      // of its address space; 0: no limit
  std::size_t answer = std::size_t{16} << 20;  // of the text
  std::optional<Duration> cpu = {};
  bool steps_back = true;  // at the lowest priority; else at ours: somebody waits for it
};

inline constexpr const char* kHangs = "the last reading has not ended: it hangs in the kernel";

class Background {
 public:
  using Work = std::function<Result<std::string>()>;
  using Done = std::function<void(Result<std::string>)>;

  explicit Background(Loop& loop) : loop_(loop) {}
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  ~Background() { stop(); }

  // One at a time. `done` gets what `work` returned in the other process, or why that is not known; not before this
  // returns. Fails while a process that ran out of time hangs in the kernel (a dead network file system).
  void start(const Work& work, const BackgroundLimits& limits, Done done);
  bool running() const { return static_cast<bool>(socket_) || failing_.has_value(); }
  void stop();  // nothing is told

 private:
  void ended();
  void tell(Result<std::string> answer);
  void report_soon(Error error);

  Loop& loop_;
  Process process_;
  Process late_;  // ran out of time; SIGKILL may not reach it
  Fd socket_;     // closes when the process has ended
  Fd answer_;     // a file in memory
  std::size_t most_ = 0;
  std::optional<Loop::TimerId> limit_;
  std::optional<Loop::TimerId> failing_;
  Done done_;
};

}  // namespace lull
