#include "gpu/short_command.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace lull {
namespace {

constexpr std::size_t kLongestWord = 60;

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_interpreter(std::string_view program) {
  constexpr std::array kNames = {"python", "bash", "sh", "zsh", "perl", "ruby", "node", "julia", "java", "Rscript"};
  return std::any_of(kNames.begin(), kNames.end(), [&](std::string_view name) {
    return program.starts_with(name) && program.find_first_not_of("0123456789.", name.size()) == std::string_view::npos;
  });
}

}  // namespace

std::string one_word(std::string_view text) {
  std::string word = printable(text.substr(0, kLongestWord));
  std::replace_if(word.begin(), word.end(), [](char c) { return c == ',' || c == ';' || c == '"' || c == ' '; }, '_');
  return word;
}

std::string short_command(const std::vector<std::string>& arguments, std::string_view name) {
  if (arguments.empty()) return one_word(name);
  // A program that renamed itself (setproctitle) has its whole line in one word.
  if (arguments.size() == 1 && arguments[0].find(' ') != std::string::npos) {
    std::vector<std::string> words;
    for (const std::string_view word : split(arguments[0], ' '))
      if (!word.empty()) words.emplace_back(word);
    return short_command(words, name);
  }
  const std::string_view program = base_name(arguments[0]);
  std::string text = one_word(program);
  if (!is_interpreter(program)) return text;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    if (arguments[i] == "-m" && i + 1 < arguments.size()) return text + " -m " + one_word(arguments[i + 1]);
    if (arguments[i] == "-c" || arguments[i] == "-e") return text;  // a text of its own, however long
    if (!arguments[i].starts_with('-')) return text + " " + one_word(base_name(arguments[i]));
  }
  return text;
}

}  // namespace lull
