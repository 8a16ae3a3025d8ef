#include "base/words.h"

#include <optional>
#include <utility>

namespace lull {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

bool is_blank(char letter) { return kBlanks.contains(letter); }

// Inside "…" a \ is only one before these.
bool is_special_in_quotes(char letter) { return std::string_view("$`\"\\\n").contains(letter); }

}  // namespace

Result<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::optional<std::string> word;  // '' is a word too
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char letter = text[i];
    if (quote == 0 && is_blank(letter)) {
      if (word) words.push_back(*std::exchange(word, std::nullopt));
      continue;
    }
    if (!word) word.emplace();
    if (quote != 0 && letter == quote) {
      quote = 0;
    } else if (quote == 0 && (letter == '\'' || letter == '"')) {
      quote = letter;
    } else if (quote == '\'' || letter != '\\') {
      *word += letter;
    } else if (i + 1 == text.size()) {
      return fail("a \\ at the end has nothing to stand before");
    } else if (quote == '"' && !is_special_in_quotes(text[i + 1])) {
      *word += letter;
    } else if (text[++i] != '\n') {  // a \ at the end of a line joins it with the next
      *word += text[i];
    }
  }
  if (quote != 0) return fail(std::string("a ") + quote + " is not closed");
  if (word) words.push_back(*std::move(word));
  return words;
}

}  // namespace lull
