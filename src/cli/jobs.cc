// `lull jobs`: every job that has GPUs on this machine, and what a watcher does about it next.

#include <string>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "session/jobs_look.h"
#include "session/machine.h"

namespace lull {

int jobs_command(int argc, char** argv) {
  CommandLine line(
      "Shows every job that has GPUs on this machine: Slurm jobs, leases, pods, containers and process trees.\n"
      "IDLE FOR, NEXT STEP and KEPT UNTIL come from the `lull watch --per` that judges the job; - is unknown.\n",
      "lull jobs");
  return list_command<JobsSession>(line, "job", argc, argv, JobsSettings(),
                                   [](const std::string& text) { complain(printable(text)); });
}

}  // namespace lull
