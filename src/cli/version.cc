#include "cli/command.h"

namespace lull {

// Defined by the build, here alone, so that a new version recompiles one file.
std::string_view version() { return LULL_VERSION; }

}  // namespace lull
