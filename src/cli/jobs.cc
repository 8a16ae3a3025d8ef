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
  line.footer(
      "On a terminal --watch is a screen of its own: q leaves, arrows move, s sorts, / filters,\n"
      "e shows all that is known of the marked job, h all keys.\n\n"
      "Example:\n  lull jobs --watch");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (watch.given()) {
    const auto interval = live_interval(every);
    if (!interval) return complain(interval.error().message(), kExitUsage);
    settings.every = *interval;
  }

  ignore_sigpipe();
  const bool live = settings.every.has_value();
  JobsSession session(std::move(settings), [](const std::string& text) { complain(printable(text)); });
  if (!live) return ended(session.once());
  return on_machine(SystemClock(), [&](Machine& machine) { return session.watch(machine); });
}

}  // namespace lull
