#pragma once
// Processes and all that descends from them, by the kernel's lists of children
// (/proc/PID/task/TID/children): this costs what there is of them, however many other
// processes the machine has.
//
// The kernel does not promise such a list to be complete: while a child ends or loses
// its parent, another may be missed. So they are walked until a walk finds nobody new.

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/process.h"

namespace lull {

// Those of `from` that there are and all below them, in order of pid. What `skip` says yes to is left out, with what is
// below it. Nothing where the kernel has no such lists, where they do not come to rest, and where it would take more
// than `most` of them: then reading all processes is as good.
std::optional<std::vector<ProcessEntry>> read_kin(std::span<const pid_t> from, std::size_t most,
                                                  const std::function<bool(const ProcessEntry&)>& skip,
                                                  const Root& root = {});

// About how many processes there are, without looking at them; 0 where nobody tells.
std::size_t count_processes(const Root& root = {});

// The children of one thread, zombies included.
Result<std::vector<pid_t>> read_children(pid_t pid, pid_t thread, const Root& root = {});

}  // namespace lull
