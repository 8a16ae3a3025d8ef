#pragma once
// `lull-end PID WAIT GRACE`: ends the process that started us, with its children, if it has not ended by itself after
// WAIT. Python's lull.watch(do="exit") and do="kill" start it (base/beside.h): who hangs in a driver or holds the
// interpreter's lock can no longer end itself. Descriptor 3 is a handle of that process.

#include <functional>
#include <string>

#include "base/exit_status.h"

namespace lull {

inline constexpr const char* kEndName = "lull-end";

SessionEnd end_program(int argc, char** argv, const std::function<void(const std::string&)>& tell);

}  // namespace lull
