#pragma once
// Reaps as an init does: our own children, and the orphans of the job that come
// to us because we are its subreaper (or PID 1 of a container). Every status is
// collected in one place and handed to whoever waits for that child; the rest
// are orphans and only keep the process table clean.

#include <sys/types.h>

#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/process.h"

struct rusage;

namespace lull {

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

  // The orphans since the last call, and the CPU that went into nobody's account when they ended.
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
std::set<std::pair<pid_t, std::uint64_t>> own_children();

}  // namespace lull
