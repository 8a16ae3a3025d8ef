#pragma once
// How every command reads its command line: the same words for the same mistake,
// --help on stdout, a mistake in one line on stderr with status 2.

#include <optional>

namespace CLI {
class App;
}

namespace lull {

// Nothing: go on. A number: the exit status, all has been said.
std::optional<int> parse_options(CLI::App& app, int argc, char** argv);

}  // namespace lull
