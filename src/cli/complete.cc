// `lull __complete KIND`: what the completions of shells offer, one per line, with what it is behind a tab. Not for
// people.
//
//   options COMMAND…           its options
//   valued COMMAND…            those of its options that need a value
//   value OPTION COMMAND…      what may stand behind the option; status 1: a file
//   commands, gpus, jobs, …    see session/completion.h

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "session/completion.h"

namespace lull {
namespace {

constexpr int kFile = 1;

void offer(std::string_view word, std::string_view what) { fmt::print("{}\t{}\n", printable(word), printable(what)); }

void offer_all(std::string_view kind) {
  for (const Offer& one : completions(kind)) offer(one.word, one.what);
}

// The options of `lull WORDS…`.
std::vector<CommandLine::Described> options_of(int count, char** words) {
  for (const Command& command : commands())
    if (count > 0 && command.name == words[0]) return CommandLine::describe(command.run, count, words);
  return {};
}

// By what --help calls the value: words in small letters with | between are all that there is.
int offer_values(std::string_view option, const std::string& value) {
  const bool words = value.contains('|') && std::ranges::none_of(value, [](char c) { return c >= 'A' && c <= 'Z'; });
  if (words)
    for (const std::string_view word : split(value, '|')) offer(word, "");
  if (value == "FILE" || value == "DIR" || value == "CMD" || value == "PROGRAM" || value == "TRACE") return kFile;
  if (value.starts_with("RULE")) {
    offer_all("rules");
    offer_all("signals");
  }
  if (value.starts_with("USER")) offer_all("users");
  if (value == "ACTION") offer_all("actions");
  if (value.contains("PID")) offer_all("jobs");
  if (option == "--signals") offer_all("signals");
  if (option == "--signal") offer_all("signal-names");
  if (option == "--gpus" || option == "--gpu") {
    offer_all("gpus");
    offer("all", "every GPU");
  }
  return 0;
}

}  // namespace

int complete_command(int argc, char** argv) {
  const std::string_view kind = argc > 1 ? argv[1] : "";
  if (kind == "options" || kind == "valued")
    for (const CommandLine::Described& option : options_of(argc - 2, argv + 2))
      for (const std::string& name : option.names)
        if (kind == "options" || (!option.value.empty() && !option.value.starts_with('['))) offer(name, option.text);
  if (kind == "value" && argc > 3)
    for (const CommandLine::Described& option : options_of(argc - 3, argv + 3))
      if (std::ranges::find(option.names, argv[2]) != option.names.end())
        return offer_values(option.names.back(), option.value);
  offer_all(kind);
  if (kind == "commands")
    for (const Command& command : commands()) offer(command.name, command.summary);
  return 0;
}

}  // namespace lull
