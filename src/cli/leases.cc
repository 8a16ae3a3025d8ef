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
  line.footer(std::string(shared::kScreenKeys) +
              "e shows all that is known of the marked lease, h all keys.\n\n"
              "Example:\n  lull leases --watch");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (const auto status = settle_interval(watch, every, settings.every)) return *status;

  const bool live = settings.every.has_value();
  LeasesSession session(std::move(settings));
  return show_list(session, live);
}

}  // namespace lull
