// `lull config`: the settings in force, and where each of them came from.

#include <fmt/format.h>

#include <string>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "config/settings.h"

namespace lull {
namespace {

constexpr const char* kConfigMore =
    "Later ones win: /etc/lull/lull.toml, ~/.config/lull/lull.toml (or $LULL_CONFIG in place of both),\n"
    "LULL_… variables, a command's own options. lull.toml(5) has all of them.\n\n"
    "Exit status: 0; 2 a file or a variable has a mistake.\n\n"
    "Examples:\n"
    "  lull config\n"
    "  LULL_GRACE=1m lull config --json\n";

}  // namespace

int config_command(int argc, char** argv) {
  bool json = false;
  CommandLine line("The settings in force, and where each of them came from.", "lull config");
  line.flag(shared::kJson, json, shared::kOneObject);
  line.footer(kConfigMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto settings = Settings::load();
  if (!settings) return complain(settings.error().message(), kExitUsage);
  fmt::print("{}", json ? settings_json(*settings) : settings_text(*settings));
  if (!json)
    for (const std::string& note : settings->notes()) complain(note);
  return 0;
}

}  // namespace lull
