// `lull __complete KIND`: what the completions of shells offer, one per line, with what it is behind a tab. Not for
// people; options come from each command's own help (packaging/completions).

#include <fmt/format.h>

#include <string_view>

#include "base/text.h"
#include "cli/command.h"
#include "session/completion.h"

namespace lull {

int complete_command(int argc, char** argv) {
  const std::string_view kind = argc > 1 ? argv[1] : "";
  for (const Offer& offer : completions(kind)) fmt::print("{}\t{}\n", printable(offer.word), printable(offer.what));
  if (kind == "commands")
    for (const Command& command : commands()) fmt::print("{}\t{}\n", command.name, command.summary);
  return 0;
}

}  // namespace lull
