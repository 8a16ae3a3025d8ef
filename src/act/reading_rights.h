#pragma once
// Who may read another process's memory: what the kernel asks for, and which setting forbids it.

#include <sys/types.h>

#include <optional>
#include <string>

namespace lull {

struct ReadingRights {
  pid_t pid = 0;                            // whose memory
  uid_t ours = 0;                           // who we are
  std::optional<uid_t> owner = {};          // of the process; nothing: it is not told
  bool may_trace = false;                   // CAP_SYS_PTRACE
  bool filtered = false;                    // by seccomp
  std::optional<unsigned> yama = {};        // kernel.yama.ptrace_scope; nothing: this kernel has none
  std::optional<bool> same_namespace = {};  // of users; nothing: it is not told
};

ReadingRights reading_rights(pid_t pid);
// What forbids it, in one line.
std::string forbidden_text(const ReadingRights& rights);

}  // namespace lull
