#include "cli/command.h"

namespace lull {

int status_command(int, char**) { return complain("status is on its way"); }

}  // namespace lull
