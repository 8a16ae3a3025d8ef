#pragma once
// What this machine is called.

#include <string>

namespace lull {

// LULL_HOST, which `lull sim --host` sets, or the name that the kernel has; "": it has none. A name for people.
std::string host_name();

}  // namespace lull
