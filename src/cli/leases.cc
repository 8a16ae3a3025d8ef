// `lull leases`: who holds which GPU, and who waits.

#include <string>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "session/leases_session.h"
#include "session/machine.h"

namespace lull {

int leases_command(int argc, char** argv) {
  LeasesSettings settings;
  CommandLine line("Shows who holds which GPU, what the GPU does meanwhile, and who waits for one.", "lull leases");
  line.flag(shared::kJson, settings.json, shared::kObjectPerLine);
  std::string every;
  const CommandLine::Option watch = line.option(shared::kWatch, every).optional_value();
  line.footer(
      "On a terminal --watch is a screen of its own: q leaves, arrows move, s sorts, / filters,\n"
      "e shows all that is known of the marked lease, h all keys.\n\n"
      "Example:\n  lull leases --watch");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (watch.given()) {
    const auto interval = live_interval(every);
    if (!interval) return complain(interval.error().message(), kExitUsage);
    settings.every = *interval;
  }

  ignore_sigpipe();
  const bool live = settings.every.has_value();
  LeasesSession session(std::move(settings));
  if (!live) return ended(session.once());
  return on_machine(SystemClock(), [&](Machine& machine) { return session.watch(machine); });
}

}  // namespace lull
