#pragma once
// Making a child process: held by a pidfd from its first instant and, where wanted,
// born inside a cgroup. Where we have the assembler for it the child runs in our
// memory, on a stack of its own, while we stand still until its exec (as vfork does):
// that saves copying our address space, a third of the time it takes to start a job.

#include "base/fd.h"

namespace lull {

struct Cloned {
  long pid = -1;  // -1: errno says why
  Fd pidfd;
  bool in_cgroup = false;
};

// `child(argument, in_cgroup)` must end in exec or _exit, make system calls only, and
// not write to memory that is not its own. `stack` bytes are enough for it.
// cgroup: descriptor of its folder, or -1.
using ChildMain = void (*)(const void* argument, bool in_cgroup);
Cloned clone_process(int cgroup, ChildMain child, const void* argument, std::size_t stack);

}  // namespace lull
