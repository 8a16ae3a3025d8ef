#pragma once
// How every command reads its command line: the same words for the same mistake,
// --help on stdout, a mistake in one line on stderr with status 2. CLI11 does the
// work, behind this header alone: it takes ten seconds to compile wherever it is included.

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace lull {

// An option of several commands (cli/shared_options.h).
struct SharedOption {
  const char* names;
  const char* value;         // what --help calls it; empty: a flag
  const char* help;          // {}: what the command adds
  const char* example = "";  // a value that would be right, where an empty one is refused
};

class CommandLine {
 public:
  // What was described, to say more about it.
  class Option {
   public:
    explicit Option(CLI::Option* option) : option_(option) {}
    Option& value(const std::string& name);      // what --help calls it
    Option& optional_value();                    // "--watch" as well as "--watch 2"
    Option& required();                          // must be given
    Option& excludes(const std::string& other);  // not both
    // `--gpus "$MINE"` of a variable that is not set must not mean what no --gpus means.
    Option& not_empty(const std::string& example);
    Option& hidden();  // not in --help: lull's own processes say it to each other
    bool given() const;

   private:
    CLI::Option* option_;
  };

  CommandLine(const std::string& about, const std::string& command);
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;
  ~CommandLine();

  // `names`: "-o,--output", or a word without a dash for arguments that are not options. What `into` holds
  // beforehand is the default, and stands behind the help in brackets; where that is nothing, the help says it.
  Option flag(const std::string& names, bool& into, const std::string& help);
  Option option(const std::string& names, std::string& into, const std::string& help,
                const std::string& default_text = {});  // how the default is said, where that is more than `into`
  Option option(const std::string& names, unsigned& into, const std::string& help, unsigned most = 1'000'000);
  Option arguments(const std::string& name, std::vector<std::string>& into, const std::string& help);
  Option each(const std::string& names, std::vector<std::string>& into,
              const std::string& help);  // given several times

  // The same with a shared definition; `more` replaces the {} in its help.
  Option flag(const SharedOption& shared, bool& into, const std::string& more = {});
  Option option(const SharedOption& shared, std::string& into, const std::string& more = {},
                const std::string& default_text = {});
  Option option(const SharedOption& shared, unsigned& into, const std::string& more = {});
  Option each(const SharedOption& shared, std::vector<std::string>& into, const std::string& more = {});

  void usage(const std::string& tail);  // what follows the name in --help, in place of "[options]"
  void footer(const std::string& text);

  // Where our own options end and a command begins: at "--" or at the first word that is neither
  // an option nor the value of one. The command's own options stay its own.
  int command_begins(int argc, char** argv) const;

  // Nothing: go on. A number: the exit status, all has been said.
  std::optional<int> parse(int argc, char** argv);

  // For the completions of shells: an option with its names, what --help calls its value, and what it does.
  struct Described {
    std::vector<std::string> names;
    std::string value;
    std::string text;
  };
  // Runs a command whose parse() only describes its options.
  static std::vector<Described> describe(int (*command)(int argc, char** argv), int argc, char** argv);

 private:
  static std::vector<Described>* describing;

  std::unique_ptr<CLI::App> app_;
  std::string usage_;
};

}  // namespace lull
