// By which number a client sees a process: the driver translates it to the caller's
// PID namespace (pid_vnr) and leaves out who has none there; older drivers give the
// host's number to everybody.
#include <dirent.h>
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "sim/library/processes.h"

namespace lull::sim {
namespace {

constexpr unsigned kDeepest = 32;  // namespaces in namespaces: the kernel allows no more

// How many namespaces below ours a process is; -1: it is in none of those.
int depth_below(std::uint32_t pid, std::uint64_t ours) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%u/ns/pid", pid);
  int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  for (int depth = 0; fd >= 0 && depth < static_cast<int>(kDeepest); ++depth) {
    struct stat status{};
    const bool here = ::fstat(fd, &status) == 0 && status.st_ino == ours;
    const int parent = here ? -1 : ::ioctl(fd, NS_GET_PARENT);
    ::close(fd);
    if (here) return depth;
    fd = parent;
  }
  return -1;
}

// The process of a load that is in another namespace than ours, if it is in one below: by its own number and its
// namespace, which name it for good. The kernel would know; we look through /proc.
std::uint32_t find_below(const Load& load, std::uint64_t ours) {
  DIR* const processes = ::opendir("/proc");
  if (processes == nullptr) return 0;
  std::uint32_t found = 0;
  while (const dirent* entry = found == 0 ? ::readdir(processes) : nullptr) {
    const auto pid = static_cast<std::uint32_t>(std::strtoul(entry->d_name, nullptr, 10));
    if (pid == 0 || pid_namespace_of(pid) != load.pid_namespace) continue;
    std::uint32_t pids[kDeepest];
    const unsigned count = pids_of(pid, pids, kDeepest);
    if (count == 0 || pids[count - 1] != load.pid) continue;
    const int depth = depth_below(pid, ours);
    if (depth >= 0 && static_cast<unsigned>(depth) < count) found = pids[count - 1 - static_cast<unsigned>(depth)];
    break;
  }
  ::closedir(processes);
  return found;
}

}  // namespace

std::uint32_t pid_for_caller(const Look& look, const Load& load) {
  const std::uint32_t host = load.host_pid != 0 ? load.host_pid : load.pid;
  if (look.card.process_view != kViewOwnNamespace) return host;
  if (load.pid_namespace == 0) return 0;  // one that is only said to be there is somewhere else
  const int before = errno;
  const std::uint64_t ours = pid_namespace_of(0);
  const std::uint32_t pid = load.pid_namespace == ours ? load.pid : find_below(load, ours);
  errno = before;
  return pid;
}

}  // namespace lull::sim
