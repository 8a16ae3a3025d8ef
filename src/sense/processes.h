#pragma once
// What /proc says about processes beyond its one line in stat (base/process.h): who
// owns one, what it runs, since when, in which container. Names and arguments are bytes that anybody may choose: they
// are kept as they are and made harmless only where they are shown. A process is looked at through a handle of its
// folder, so that a pid reused halfway never gives a mixture of two processes.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "gpu/snapshot.h"

namespace lull {

// One process; an error where it is gone or hidden from us.
Result<ProcessInfo> read_process(const Root& root, pid_t pid);

// Who a process acts as. Reads nothing that could hang; nothing where it is gone or hidden from us.
std::optional<uid_t> process_user(const Root& root, pid_t pid);

// Every pid that can be seen, ascending.
std::vector<pid_t> process_ids(const Root& root);

// Fills snapshot.processes for every tenant that can be seen from here.
void join_processes(Snapshot& snapshot, const Root& root);

// From the text of /proc/PID/cgroup: the path that says most, and the container in it:
// 12 hex digits as docker ps shows them, a name for LXC and nspawn, "slurm:4711" for a batch job.
std::string cgroup_path(std::string_view text);
std::string container_of(std::string_view cgroup);
bool inside_slurm();  // are we ourselves in a batch job?

// When a process began by the wall clock, which may have been set since.
WallTime started_at(std::uint64_t start_ticks);

}  // namespace lull
