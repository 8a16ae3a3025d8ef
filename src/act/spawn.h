#pragma once
// Starting a process: a job that gets our terminal, signals and descriptors as they are, or a helper (a hook, curl,
// shutdown) that gets only what it is given. An exec that fails is an error here and not a child that exits with 127.

#include <sys/types.h>
#include <termios.h>

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

// The signal mask and the dispositions that lull was started with. Taken before
// the first signal is blocked; what we start gets them back.
struct InheritedSignals {
  sigset_t mask{};
  struct sigaction pipe{};
  struct sigaction child{};

  // Also makes ours what we need: SIGPIPE ignored, SIGCHLD at its default.
  static InheritedSignals take();
};

struct SpawnOptions {
  std::vector<std::string> arguments = {};                            // [0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment = {};  // set in addition to ours
  std::vector<std::string> unset = {};                                // of ours, unless set here
  int cgroup = -1;                                                    // folder of the cgroup to start in
  int standard_input = -1;                                            // -1: ours
  int standard_output = -1;
  int standard_error = -1;
  bool own_session = false;  // helpers: Ctrl-C is for the job, not for them
  const InheritedSignals* signals = nullptr;
  // In the child, last of all: 0, or the errno for which it gives up. System calls only: no memory, no lock.
  std::function<int()> in_child = {};
};

struct Spawned {
  Process process;
  bool in_cgroup = false;  // the kernel may refuse: then it runs where we are
};

// errno_value is exec's own: ENOENT for a command that is not there.
Result<Spawned> spawn(const SpawnOptions& options);

// Starts it and waits, at most so long: for questions that are asked before anything
// is watched. Its stdout comes back (cut at 64 KiB), its stderr goes nowhere.
struct Output {
  int status = 0;  // as a shell says it
  std::string text;
};
Result<Output> run_and_wait(SpawnOptions options, Duration limit);

// Whether `name` is found in PATH (or is a path) and may be executed; the error is what exec would say.
Result<> check_executable(const std::string& name);
bool is_executable(const std::string& name);

// As the shell, env(1) and timeout(1) say it: 127 not found, 126 cannot be run.
int status_of_failed_exec(const Error& error);

// Descriptors 0, 1 and 2 that are closed get /dev/null for ourselves, so that no
// file of ours lands there; what we start still finds them closed.
void guard_standard_descriptors();

// A file in memory with this content, at its beginning: a hook's stdin that
// cannot block us however little of it the hook reads.
Result<Fd> memory_file(std::string_view content);

// The user that a command runs as: looked up beforehand, taken on in a child.
struct Account {
  uid_t user = 0;
  gid_t group = 0;
  std::string name;
  std::string home;
  std::string shell;
  std::vector<gid_t> groups;

  static Result<Account> find(const std::string& name);

  // In a child: for good. 0, or the errno for which it gives up. System calls only.
  int become() const;
};

// The terminal as it was before a job had it. A job that is killed cannot put back what it changed (raw mode, no echo,
// its own process group in the foreground), so whoever kills it does.
class Terminal {
 public:
  // Remembers the controlling terminal if we are in its foreground; else nothing.
  static Terminal remember();
  // There is one, and Ctrl-Z on it stops us and the job together.
  bool has_job_control() const { return static_cast<bool>(tty_); }
  void restore() const;
  // The process group that has it now; 0: unknown.
  pid_t foreground() const;
  void give_to(pid_t group) const;

 private:
  Fd tty_;
  std::optional<termios> modes_;
  pid_t foreground_ = 0;
};

// Stops this process as Ctrl-Z would, so that the shell that started us notices;
// returns when it continues. If no process could continue us (PID 1, no job control) it does nothing.
void stop_ourselves();

}  // namespace lull
