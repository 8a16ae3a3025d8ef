#pragma once
// A process that was seen holding a GPU: whose it is, and of which job.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

namespace lull {

struct Holder {
  pid_t pid = 0;
  std::uint64_t start_ticks = 0;  // with pid: names a process for good
  uid_t user = 0;
  std::string user_name;
  std::string name;       // comm
  std::string job;        // "tree:4711@…", "lease:…", "container:…", "slurm:12": which job it is of
  std::string job_title;  // for a person
  bool stopped = false;   // somebody stopped it, a debugger has, or its cgroup is frozen
  bool operator==(const Holder&) const = default;

  std::pair<pid_t, std::uint64_t> id() const { return {pid, start_ticks}; }
};

}  // namespace lull
