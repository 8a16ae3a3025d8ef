#pragma once
// One simulation from its beginning to its end: makes the folder and the state of a
// scenario, runs a command in it, and leaves nothing behind.

#include <functional>
#include <string>
#include <vector>

#include "base/exit_status.h"
#include "base/result.h"
#include "sim/scenario.h"

namespace lull::sim {

// No command: the user's shell. `ready` is called when the GPUs are there, before the command starts.
Result<SessionEnd> simulate(const Scenario& scenario, const std::vector<std::string>& command,
                            const std::function<void()>& ready);

}  // namespace lull::sim
