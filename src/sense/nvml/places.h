#pragma once
// Where the driver's library is when the loader does not know: some systems keep it
// in a folder of their own. And whether we are in a container, where it is not there
// unless the container was started for it.

#include <string>
#include <string_view>

namespace lull {

// The path of the library in one of those folders; empty: in none of them. `top` stands for / in tests.
std::string find_library(std::string_view name, const std::string& top = "");

bool in_container(const std::string& top = "");

}  // namespace lull
