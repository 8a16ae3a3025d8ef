#pragma once
// Powering the machine off, or rebooting it. logind is asked where there is one (by busctl, which can be left behind if
// the bus hangs), else shutdown(8), by sudo where that needs no password. Whether we may is found out before it
// matters.

#include <string>
#include <vector>

#include "act/spawn.h"
#include "base/result.h"

namespace lull {

enum class Power : bool { off, reboot };

// The command that will do it, once it is known that it may; else why not.
Result<std::vector<std::string>> find_power_command(Power power, const InheritedSignals* signals);

// A line on the terminal of each logged-in user. Returns the number of terminals.
std::size_t write_to_terminals(const std::string& message, const Root& root);

}  // namespace lull
