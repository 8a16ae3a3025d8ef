#pragma once
// Runs one command among simulated GPUs: gives it the environment, starts and
// ends the scenario's processes at their times, forwards signals, waits, and
// says how the command ended. The command shares our terminal and our process
// group, so Ctrl-C, Ctrl-Z and a shell's job control work as without us.

#include <sys/types.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/exit_status.h"
#include "base/fd.h"
#include "base/result.h"
#include "sim/scenario.h"

namespace lull::sim {

// Holds back the signals that end a program until they are read from fd(),
// so that nothing is left behind by one that comes at a bad moment. The old mask
// is back at the end.
class SessionSignals {
 public:
  SessionSignals();
  SessionSignals(const SessionSignals&) = delete;
  SessionSignals& operator=(const SessionSignals&) = delete;
  ~SessionSignals() { restore(); }

  int fd() const { return fd_.get(); }
  void restore() const;

 private:
  sigset_t old_{};
  Fd fd_;
};

// A process of the scenario: real, started by us `at` after the start.
struct ScheduledProcess {
  Duration at{};
  std::vector<std::string> command;  // arguments to ourselves, the first is the name to show
};

struct Session {
  std::vector<std::string> command;                              // empty: the user's shell
  std::vector<std::pair<std::string, std::string>> environment;  // an empty value unsets
  std::vector<ScheduledProcess> processes;
  Instant start{};  // when the simulation's clock began
};

// The exit status as lull passes it on: the command's own, 128+N if signal N
// ended it, 126 or 127 with a complaint if it could not be run or was not found.
Result<SessionEnd> run_session(const Session& session, const SessionSignals& signals);

// One simulation from its beginning to its end: makes the folder and the state of a
// scenario, runs a command in it, and leaves nothing behind.
// No command: the user's shell. `ready` is called when the GPUs are there, before the command starts.
Result<SessionEnd> simulate(const Scenario& scenario, const std::vector<std::string>& command,
                            const std::function<void()>& ready);

}  // namespace lull::sim
