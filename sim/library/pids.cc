// By which number a client sees a process: the driver translates it to the caller's
// PID namespace (pid_vnr) and leaves out who has none there; older drivers give the
// host's number to all.
#include <cerrno>

#include "sim/library/processes.h"

namespace lull::sim {

std::uint32_t pid_for_caller(const Look& look, const Load& load) {
  const int before = errno;
  if (look.card.process_view != kViewOwnNamespace) {
    const std::uint32_t host = host_pid_of(look.scene.state, load);
    errno = before;
    return host;
  }
  if (load.pid_namespace == 0) return 0;  // one that is only said to be there is somewhere else
  const std::uint64_t ours = pid_namespace_of(0);
  const std::uint32_t pid = load.pid_namespace == ours ? load.pid : pid_below(load, ours);
  errno = before;
  return pid;
}

}  // namespace lull::sim
