#pragma once
// `lull slurm prolog` and `lull slurm epilog`. Slurm drains a node whose Prolog fails: these always end with 0, within
// a second, whatever happens. What went wrong is one line on stderr, which slurmd logs.

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/result.h"
#include "slurm/allocation.h"

namespace lull::slurm {

using Environment = std::function<std::optional<std::string>(const char* name)>;

// What slurmd tells its Prolog.
Result<Allocation> allocation_from(const Environment& environment, const std::string& node, WallTime now);

// Runs `body` in a process of its own and waits for it no longer than `limit`; what it complains of, or that it took
// too long. The rest of it is killed, or left behind where it hangs in the kernel.
std::string complaint_within(Duration limit, const std::function<Result<>()>& body);

}  // namespace lull::slurm
