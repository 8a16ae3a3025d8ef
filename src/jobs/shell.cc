#include "jobs/shell.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "base/errand.h"
#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// By the name of the process: of a script that begins with #! that is the script's.
constexpr std::array<std::string_view, 19> kShells = {"bash", "sh",   "zsh", "fish",  "dash",  "ksh",   "ksh93",
                                                      "mksh", "tcsh", "csh", "ash",   "yash",  "rbash", "busybox",
                                                      "nu",   "pwsh", "osh", "xonsh", "elvish"};
// Options behind which a word follows that is no script.
constexpr std::array<std::string_view, 6> kTakeAWord = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"};
constexpr Duration kLongestAnswer = 1s;

bool has_terminal(const Root& root, pid_t pid) {
  const auto text = read_file(AT_FDCWD, root.proc + "/" + std::to_string(pid) + "/stat", 4096);
  if (!text) return false;
  const std::size_t after = text->rfind(") ");
  if (after == std::string::npos) return false;
  const std::vector<std::string_view> fields = split(std::string_view(*text).substr(after + 2), ' ');
  return fields.size() > 4 && fields[4] != "0";  // tty_nr
}

}  // namespace

bool asks_for_commands(std::span<const std::string_view> arguments) {
  if (arguments.empty() || arguments[0].empty()) return false;  // it cannot be seen
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (std::ranges::find(kTakeAWord, word) != kTakeAWord.end()) {
      ++i;
      continue;
    }
    const bool option = word.size() > 1 && (word[0] == '-' || word[0] == '+');
    const bool letters = option && word[1] != '-';
    // -c, -lc; fish and nushell may say it in full.
    if (!option || word.starts_with("--command") || (letters && word.find('c') != std::string_view::npos)) return false;
  }
  return true;
}

bool is_typed_into(const ProcessEntry& shell, const ProcessEntry& child, const Root& root) {
  if (shell.session != shell.pid || child.session != shell.session || child.group == shell.group) return false;
  if (std::ranges::find(kShells, shell.name) == kShells.end() || !has_terminal(root, shell.pid)) return false;
  // A script may ask for job control as well (set -m): what the shell was started with tells them apart.
  const auto line = ask_aside(
      [&] { return read_file(AT_FDCWD, root.proc + "/" + std::to_string(shell.pid) + "/cmdline", 4096).value_or(""); },
      kLongestAnswer);
  if (!line) return false;
  std::string_view text = *line;
  if (text.ends_with('\0')) text.remove_suffix(1);
  return asks_for_commands(split(text, '\0'));
}

}  // namespace lull
