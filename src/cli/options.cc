#include "cli/options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "cli/command.h"

namespace lull {
namespace {

// The first argument that looks like an option and is none, with the nearest that is.
std::string unknown_option(const CLI::App& app, const std::vector<std::string>& rest) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string_view> candidates(names.begin(), names.end());
  for (const std::string& argument : rest) {
    if (!argument.starts_with("-")) continue;
    const std::string word = argument.substr(0, argument.find('='));
    return fmt::format("there is no option {}{}", printable(word), did_you_mean(word, candidates));
  }
  return rest.empty() ? std::string() : fmt::format("'{}' is one argument too many", printable(rest.front()));
}

}  // namespace

std::optional<int> parse_options(CLI::App& app, int argc, char** argv) {
  const auto refuse = [&](const std::string& what) {
    fmt::print(stderr, "{}: {} ({} --help explains)\n", app.get_name(), what, app.get_name());
    return kExitUsage;
  };
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    const std::string help = app.help();
    fmt::print("{}{}", help, help.ends_with('\n') ? "" : "\n");
    return 0;
  } catch (const CLI::ExtrasError& error) {
    const std::string what = unknown_option(app, app.remaining());
    return refuse(what.empty() ? printable(error.what()) : what);
  } catch (const CLI::ParseError& error) {
    return refuse(printable(error.what()));
  }
  return std::nullopt;
}

}  // namespace lull
