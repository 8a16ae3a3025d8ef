#pragma once
// The version of this build, as `lull --version` says it.

#include <string_view>

namespace lull {

std::string_view version();

}  // namespace lull
