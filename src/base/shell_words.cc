#include "base/shell_words.h"

namespace lull {

Result<std::vector<std::string>> shell_words(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // of a word, which may be an empty one in quotes
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\' && quote != '\'') {
      if (i + 1 == text.size()) return fail("it ends in a backslash");
      const char next = text[++i];
      inside = true;
      // In double quotes it keeps its meaning before these alone; before the end of a line both go.
      if (quote == '"' && std::string_view("\"\\$`\n").find(next) == std::string_view::npos) word += c;
      if (next != '\n') word += next;
    } else if (quote != 0) {
      if (c == quote)
        quote = 0;
      else
        word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) return fail(std::string("a ") + quote + " is not closed");
  if (inside) words.push_back(std::move(word));
  return words;
}

}  // namespace lull
