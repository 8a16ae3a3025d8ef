#pragma once
// `lull-signal NAME=SOURCE`: reads a signal of the user's own once, and ends. A program with threads (Python) must not
// fork, so it starts this for each reading (process_start.h). Descriptor 3 is a file for the answer. Descriptor 4 is a
// socket: when its other end closes, this program ends, with all that a command has started.

#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "loop/loop.h"
#include "sense/sampler.h"
#include "signals/reading.h"

namespace lull {

inline constexpr const char* kSignalName = "lull-signal";

// main() of that program.
Result<> signal_program(int argc, char** argv);

// The readings of a program with threads, beside its loop.
class SignalPrograms {
 public:
  using Done = std::function<void(const Result<SignalReading>&)>;

  SignalPrograms(Loop& loop, SensorProgram program) : loop_(loop), program_(std::move(program)) {}
  SignalPrograms(const SignalPrograms&) = delete;
  SignalPrograms& operator=(const SignalPrograms&) = delete;
  ~SignalPrograms();

  // `done` is called later, once.
  void read(const SignalSource& source, Done done);

 private:
  struct One {
    std::string source;
    Process process;
    Fd line;  // closes when the program has ended
    Fd answer;
    std::optional<Loop::TimerId> limit;
    Done done;
  };
  using Place = std::list<One>::iterator;
  Result<> start(const SignalSource& source, One& one);
  void ended(Place one);
  void tell(Place one, const Result<SignalReading>& reading);

  Loop& loop_;
  SensorProgram program_;
  std::list<One> running_;
  std::map<std::string, Process> late_;  // ran out of time, by source; SIGKILL may not reach them
};

}  // namespace lull
