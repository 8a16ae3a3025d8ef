// `lull leases`: who holds which GPU, and who waits.

#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "session/leases_session.h"
#include "session/machine.h"

namespace lull {

int leases_command(int argc, char** argv) {
  CommandLine line("Shows who holds which GPU, what the GPU does meanwhile, and who waits for one.", "lull leases");
  return list_command<LeasesSession>(line, "lease", argc, argv, LeasesSettings());
}

}  // namespace lull
