#pragma once
// Long work beside a session: in a process of its own, at the lowest priority, within limits. The loop goes on
// meanwhile. It ends with us, and when its time is up. A program with other threads must not fork: there a program does
// the work.

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/process_start.h"
#include "base/result.h"
#include "loop/loop.h"

namespace lull {

struct BackgroundLimits {
  Duration time = std::chrono::minutes(10);
  std::size_t memory = 0;                      // of its address space; 0: no limit
  std::size_t answer = std::size_t{16} << 20;  // of the text
  std::optional<Duration> cpu = {};
  bool steps_back = true;  // at the lowest priority; else at ours: a user waits for it
};

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
  // The same of a program, which is to apply() the limits and to write_answer() to the first of these descriptors. It
  // ends, with all that it has started, when the other end of the second closes.
  void start(const ProgramStart& program, const BackgroundLimits& limits, Done done);
  static constexpr int kAnswerOfProgram = 3;
  static constexpr int kLineOfProgram = 4;
  static void apply(const BackgroundLimits& limits);  // to this process
  static Result<> write_answer(int file, const Work& work, std::size_t most);
  bool running() const { return socket_ || failing_; }
  void stop();  // nothing is told

 private:
  bool prepare(const BackgroundLimits& limits, Done done);
  void follow(Process process, Fd socket, Duration time);
  void ended();
  void tell(Result<std::string> answer);
  void report_soon(Error error);

  Loop& loop_;
  Process process_;
  Process late_;  // ran out of time; SIGKILL may not reach it
  Fd socket_;     // closes when the process has ended; it ends when we close it
  Fd answer_;     // a file in memory
  std::size_t most_ = 0;
  Timer limit_{loop_};
  Timer failing_{loop_};
  Done done_;
};

}  // namespace lull
