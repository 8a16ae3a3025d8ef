#pragma once
// A user by name, as the user database knows it: also one of a network directory.

#include <sys/types.h>

#include <optional>
#include <string>

namespace lull {

// Of this name, or of this number.
std::optional<uid_t> user_called(const std::string& name);

}  // namespace lull
