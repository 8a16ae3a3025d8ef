// `lull jobs`: every job that has GPUs on this machine, and what a watcher does about it next.

#include <string>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "session/jobs_session.h"
#include "session/machine.h"

namespace lull {

int jobs_command(int argc, char** argv) {
  JobsSettings settings;
  CommandLine line(
      "Shows every job that has GPUs on this machine: Slurm jobs, leases, pods, containers and process trees.\n"
      "IDLE FOR, NEXT STEP and KEPT UNTIL come from the `lull watch --per` that judges the job; - is unknown.\n",
      "lull jobs");
  line.flag(shared::kJson, settings.json, shared::kObjectPerLine);
  std::string every;
  const CommandLine::Option watch = line.option(shared::kWatch, every).optional_value();
  line.footer(std::string(shared::kScreenKeys) +
              "e shows all that is known of the marked job, h all keys.\n\n"
              "Example:\n  lull jobs --watch");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (const auto status = settle_interval(watch, every, settings.every)) return *status;

  const bool live = settings.every.has_value();
  JobsSession session(std::move(settings), [](const std::string& text) { complain(printable(text)); });
  return show_list(session, live);
}

}  // namespace lull
