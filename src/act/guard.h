#pragma once
// A filler under guard: a command of which no process may outlive us, however we end. Its parent is a process of ours,
// the guard: the subreaper of all descendants of the command. It kills them all as soon as we are gone, paused or not.
// If the guard itself is killed, the command dies with it, and we kill what is left.
//
// A tree is paused by its cgroup's freezer, and by SIGSTOP to all processes that it does not reach. It counts as paused
// only when the guard has seen it.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "act/cgroup.h"
#include "act/children.h"
#include "act/spawn.h"
#include "act/tree.h"
#include "base/process.h"
#include "base/result.h"
#include "loop/loop.h"

namespace lull {

struct GuardMessage;

struct GuardOptions {
  std::vector<std::string> command;
  std::vector<std::pair<std::string, std::string>> environment = {};
  std::vector<std::string> unset = {};  // of our environment
  std::string directory = {};           // empty: ours
  std::string user = {};                // empty: as we are
  int nice = 0;
  int io_priority = 0;         // as ioprio_set takes it; 0: unchanged
  std::string log = {};        // its output is appended to it; empty: goes where ours goes
  std::uint64_t log_size = 0;  // begun anew at this size; 0: never
  unsigned log_keep = 0;       // so many old ones are kept
  bool use_cgroup = true;
  const InheritedSignals* signals = nullptr;
};

// How it went.
struct GuardEnd {
  ExitStatus status = {};        // of the command itself
  std::size_t killed = 0;        // how many needed SIGKILL
  std::string not_started = {};  // why it could not be started; empty: it was
  int errno_value = 0;           // with not_started: exec's own
};

// Where a process comes from, as far as that says whose it is. Read once, it is asked of many guards.
struct Lineage {
  std::vector<pid_t> line;  // itself, its parent, and so on
  std::string cgroups;      // the text of /proc/PID/cgroup
  static Lineage of(pid_t pid);
};

class Guard {
 public:
  // From the loop, never from in here.
  struct Calls {
    std::function<void(pid_t)> started;
    std::function<void(const GuardEnd&)> gone;  // once, when nothing of it is left
    std::function<void()> stuck;                // processes are left that SIGKILL does not end; it is tried again
    std::function<void()> still;                // all of it has been seen to be stopped, since halt()
    std::function<void(const std::string&)> log_trouble;  // what is wrong with its log, in words
  };
  static Result<std::unique_ptr<Guard>> start(Loop& loop, Children& children, const GuardOptions& options, Calls calls);
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  ~Guard();  // kills what is there

  // All of it is to be paused, now; or goes on.
  void halt();
  void go_on();
  bool is_paused() const { return still_; }  // proven
  // Lets it go on, and ends it. Again: with less patience.
  void end(const Ending::Options& how);

  pid_t pid() const { return root_; }  // of the command; 0: not known yet
  // Whether this process came of the command, or is the guard.
  bool owns(const Lineage& process) const;

 private:
  Guard(Loop& loop, Children& children, Calls calls, const GuardOptions& options);
  std::string named(std::int32_t refuser) const;
  void tell(const GuardMessage& word);
  void send_messages();
  void report_freezing();
  void read_messages();
  void guard_ended();
  void kill_what_is_left();
  void finish();

  Loop& loop_;
  Children& children_;
  Calls calls_;
  std::string command_;
  std::string log_;
  std::string user_;
  std::string directory_;
  Process process_;  // the guard
  Fd socket_;
  Cgroup cgroup_;
  Fd freezer_;
  pid_t root_ = 0;
  GuardEnd end_;
  std::int32_t halts_ = 0;  // how often it was told to stop
  bool still_ = false;
  bool told_ = false;  // the guard has said how it went
  bool over_ = false;
  int quiet_ = 0;  // scans in a row that found no process, after the guard was killed
  Timer timer_{loop_};
  std::vector<GuardMessage> unsent_;
  Timer sending_{loop_};
  Timer telling_{loop_};  // that its cgroup has been frozen
};

// Whether a guarded command (guard.h) could be started: tried as its user, without starting or writing anything.
//
// What is in the way, in words with the path; empty: nothing that can be seen now.
std::vector<std::string> what_prevents_start(const GuardOptions& options);

}  // namespace lull
