#pragma once
// Work that belongs to a job but is not in its process tree: workers of a daemon that it asks
// (Ray), of a container that it starts (docker), of an MPS server. `--also` names it; its GPU
// contexts, its CPU and its bytes then count as the job's. It is never ended.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "act/tree.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

class Also {
 public:
  // PID: a process and its descendants. A path of a cgroup, below the mount point of the unified
  // hierarchy or as in /proc/PID/cgroup, with those below it. 12 and more hexadecimal digits: a
  // container, as docker shows its id. A process must be there; the others may come later.
  static Result<Also> parse(const std::vector<std::string>& words, const Root& root = {});

  bool empty() const { return items_.empty(); }
  bool contains(pid_t pid) const;
  std::vector<ProcessEntry> members() const;  // a scan of /proc where there is more than processes
  // Those without processes now, as they were written.
  std::vector<std::string> nobody_in() const;
  // Processes that have ended with all their descendants since the last time this was asked, as they were written: they
  // do not come back.
  std::vector<std::string> take_ended();
  // All that was named were processes, and all of them have ended.
  bool over() const;

 private:
  enum class Kind : std::uint8_t { process, cgroup, container };
  struct Item {
    Kind kind = Kind::process;
    std::string text;  // as it was written
    std::string name;  // the cgroup's path as in /proc/PID/cgroup, or the container's first 12 digits
    Process process;
    Tree tree;
    bool ended = false;
  };
  bool holds(const Item& item, pid_t pid, const std::string& cgroups) const;

  Root root_;
  std::vector<Item> items_;
};

}  // namespace lull
