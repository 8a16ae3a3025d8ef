#pragma once
// What /proc says about processes beyond its one line in stat (base/process.h): who owns one, what it runs, since when,
// in which container. Names and arguments are bytes that any user may choose: they are escaped only where they are
// shown. A handle of its folder makes sure that a pid reused halfway never gives a mixture of two processes.

#include <sys/types.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "gpu/snapshot.h"

namespace lull {

// Whether an error of one of its files says that the process has ended.
constexpr bool process_is_gone(int error) { return error == ENOENT || error == ESRCH; }

// One process; an error where it is gone or hidden from us.
Result<ProcessInfo> read_process(const Root& root, pid_t pid);

// Who a process acts as. Reads nothing that could hang; nothing where it is gone or hidden from us.
std::optional<uid_t> process_user(const Root& root, pid_t pid);

// Moves what is known of a process to each mention of it in the lists of the GPUs.
void add_process_info(std::span<ProcessInfo> known, std::span<Reading> readings);

// Every pid that can be seen, ascending; an error where some may be missing.
Result<std::vector<pid_t>> process_ids(const Root& root);

// From the text of /proc/PID/cgroup: the path that says most.
std::string cgroup_path(std::string_view text);

// The Slurm job, the pod and the container that a process is in, by every line of that text: Slurm first, then pods.
// The name is for people: whoever may make cgroups chooses it. Two processes are in the same one only if the whole
// paths are equal.
enum class CgroupKind : std::uint8_t { container, pod, slurm };
struct NamedCgroup {
  CgroupKind kind = CgroupKind::container;
  std::string name;  // 12 hex digits as docker ps shows them, a name for LXC and nspawn; the pod's UID; the job's
                     // number or, where Slurm has that instead, its SLUID
  std::string path;  // of the cgroup that the name comes from
};
std::vector<NamedCgroup> named_cgroups(std::string_view text);
// "0123456789ab", "pod:UID", "slurm:4711"
std::string to_text(const NamedCgroup& one);
std::string container_of(std::string_view text);  // the first of them; empty: none
bool inside_slurm();                              // are we ourselves in a batch job?
bool inside_slurm_job(std::string_view job);      // in this one? "slurm:22"

// True in the machine's first pid namespace, where the driver shows all processes. Elsewhere (a container) a driver
// leaves out the processes of others without a word, or gives the numbers of the host, which may be those of quite
// different processes here: a list is what we know at least. Nothing: unknown now. A simulated driver knows
// the processes as we see them, unless its folder says otherwise: Root::driver's /proc has a self/ns/pid then.
std::optional<bool> first_pid_namespace(const Root& root);
// The /proc of a simulation, which shows what a driver would write there; empty: there is none.
std::string simulated_proc(const Root& root);

// Which processes are those of a `lull fill`, of any user: they give their GPU to other jobs. They are known by an
// ancestor, their guard. Any user may name a process so: it is only for output and for the question of `lull pick`, and
// takes nothing from other users.
class Fillers {
 public:
  bool contain(pid_t pid);

 private:
  std::map<pid_t, bool> known_;
};

}  // namespace lull
