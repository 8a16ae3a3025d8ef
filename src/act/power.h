#pragma once
// Powering the machine off, or starting it anew. logind is asked where there is one
// (it knows who may, and lets others finish), else shutdown(8), by sudo where that
// needs no password. Whether we may is found out before it matters.
//
// logind is spoken to by busctl, which comes with it: nothing is linked or loaded for
// what most runs never do, and a bus that hangs can be left behind like any helper.

#include <string>
#include <vector>

#include "act/spawn.h"
#include "base/result.h"

namespace lull {

enum class Power : bool { off, reboot };

// The command that will do it, once it is known that it may; else why not.
Result<std::vector<std::string>> find_power_command(Power power, const InheritedSignals* signals);

// A line on the terminal of everybody who is logged in. How many were told.
std::size_t tell_terminals(const std::string& message, const Root& root);

}  // namespace lull
