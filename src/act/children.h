#pragma once
// Our child processes: reaping them (Children), and helpers beside a job that have a time limit (Helpers).

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "act/cgroup.h"
#include "act/spawn.h"
#include "act/tree.h"
#include "base/process.h"
#include "loop/loop.h"

struct rusage;

namespace lull {

// Reaps as an init does: our own children, and the orphans of the job that come to us because we are its subreaper (or
// PID 1 of a container). Whoever waits for a child gets its status; the rest are orphans.
class Children {
 public:
  using Ended = std::function<void(const ExitStatus&)>;
  using Stopped = std::function<void(int signal)>;  // 0: runs again

  // From now on orphans below us become our children instead of init's.
  static bool become_subreaper();

  void expect(const Process& child, Ended ended, Stopped stopped = nullptr);
  void forget(const Process& child) { waiting_.erase(child.pid()); }
  bool expects(pid_t pid) const { return waiting_.contains(pid); }

  // Collects every status there is. To be called on SIGCHLD, and when the pidfd
  // of a child becomes readable.
  void sweep();

  // The orphans since the last call, and their CPU time, which no other account has when they end.
  std::vector<Reaped> take_orphans() { return std::exchange(orphans_, {}); }

 private:
  struct Waiting {
    Ended ended;
    Stopped stopped;
  };
  void note_orphan(pid_t pid, const rusage& used);

  std::map<pid_t, Waiting> waiting_;
  std::vector<Reaped> orphans_;
};

// Our children right now, by pid and start time. To be asked before a second thread has children.
std::set<ProcessId> own_children();

struct HelperOptions {
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::string input = {};  // its stdin
  Duration limit = std::chrono::seconds(30);
  std::string output_file = {};                     // its stdout; empty: ours is stderr for it
  bool capture = false;                             // its stdout comes back as text
  std::size_t most_output = std::size_t{64} << 10;  // of that
  bool no_more_output = false;                      // and it cannot write more: for commands that run again and again
  bool leaves_nothing = false;                      // what is left of it when it ends is ended as well
  bool quiet = false;                               // its stderr goes where its stdout goes
  const InheritedSignals* signals = nullptr;
  std::function<bool()> may_start = nullptr;  // asked right before it is started
};

struct HelperResult {
  std::optional<ExitStatus> status;  // nothing: it could not be started, or ran out of time
  bool timed_out = false;
  bool not_allowed = false;  // may_start said no: nothing was started
  std::string trouble;       // in words; empty: it ended with 0
  std::string output;        // where wanted, cut at most_output
  bool ok() const { return status && status->shell_status() == 0; }
};

// Runs a helper beside the job (a hook, curl, shutdown, gdb) in the loop: started, given its input, ended with all that
// came of it, daemons included, when its time is up. Nothing here blocks.
class Helpers {
 public:
  using Done = std::function<void(const HelperResult&)>;
  Helpers(Loop& loop, Children& children, bool use_cgroup = true)
      : loop_(loop), children_(children), use_cgroup_(use_cgroup) {}
  ~Helpers();
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

  // `on_start` learns of the process, so that a job's tree can leave it out.
  void run(const HelperOptions& options, Done done, const std::function<void(const Process&)>& on_start = nullptr);

 private:
  struct Running;
  static void end(Running& one);
  bool may_have_left() const;
  void finish(const std::shared_ptr<Running>& one, HelperResult result);

  Loop& loop_;
  Children& children_;
  bool use_cgroup_;
  std::vector<std::shared_ptr<Running>> running_;
  unsigned number_ = 0;
};

}  // namespace lull
