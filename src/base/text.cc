#include "base/text.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <system_error>

namespace lull {
namespace {

bool blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

// Edits (insert, delete, replace, swap of neighbours) between two words.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1);
  std::vector<std::size_t> last(b.size() + 1);
  std::vector<std::size_t> now(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + change});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

// The code point of a valid sequence of this length.
std::uint32_t code_point(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(sequence[i])); };
  switch (sequence.size()) {
    case 2: return (byte(0) & 0x1FU) << 6U | (byte(1) & 0x3FU);
    case 3: return (byte(0) & 0x0FU) << 12U | (byte(1) & 0x3FU) << 6U | (byte(2) & 0x3FU);
    case 4: return (byte(0) & 0x07U) << 18U | (byte(1) & 0x3FU) << 12U | (byte(2) & 0x3FU) << 6U | (byte(3) & 0x3FU);
    default: return byte(0);
  }
}

// What moves the cursor, turns the direction of the text around it, ends a line or hides letters.
bool harmful(std::uint32_t code) {
  struct Range {
    std::uint32_t first;
    std::uint32_t last;
  };
  constexpr std::array kHarmful = {
      Range{0x00, 0x1F},     Range{0x7F, 0x9F},     Range{0x061C, 0x061C},
      Range{0x200E, 0x200F}, Range{0x2028, 0x202E}, Range{0x2066, 0x206F},
      Range{0xFEFF, 0xFEFF}, Range{0xFFF9, 0xFFFB}, Range{0xE0000, 0xE007F},
  };
  return std::any_of(kHarmful.begin(), kHarmful.end(),
                     [code](const Range& range) { return code >= range.first && code <= range.last; });
}

}  // namespace

std::string_view trim(std::string_view text) {
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

std::optional<double> to_double(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) return std::nullopt;
  return number;
}

std::optional<std::uint64_t> to_unsigned(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  // A guess further away than a third of the word does not help.
  std::size_t best = std::max<std::size_t>(1, word.size() / 3) + 1;
  std::string_view found;
  if (word.empty() || word.size() > 64) return found;
  for (const std::string_view candidate : candidates) {
    if (const std::size_t d = distance(word, candidate); d < best) {
      best = d;
      found = candidate;
    }
  }
  if (found.empty() && word.size() >= 2)  // "memory" for "mem_used": the same beginning
    for (const std::string_view candidate : candidates)
      if (candidate.starts_with(word) || (candidate.size() >= 3 && word.starts_with(candidate))) return candidate;
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string_view> candidates) {
  const std::string_view found = nearest(word, candidates);
  return found.empty() ? "" : "; did you mean '" + std::string(found) + "'?";
}

Result<std::size_t> one_of(std::string_view text, std::span<const std::string_view> words) {
  const auto found = std::ranges::find(words, text);
  if (found != words.end()) return static_cast<std::size_t>(found - words.begin());
  std::string right;
  for (std::size_t i = 0; i < words.size(); ++i)
    right += std::string(i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + std::string(words[i]);
  return fail("'" + printable(text) + "': " + right + " would be right" + did_you_mean(text, words));
}

std::vector<std::string> comma_list(std::span<const std::string> lists) {
  std::vector<std::string> members;
  for (const std::string& list : lists)
    for (const std::string_view member : split(list, ',')) members.emplace_back(trim(member));
  return members;
}

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const std::size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first >= 0xF5 || (first >= 0x80 && first < 0xC2) || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  if (length == 3 && ((first == 0xE0 && byte(1) < 0xA0) || (first == 0xED && byte(1) >= 0xA0))) return 0;
  if (length == 4 && ((first == 0xF0 && byte(1) < 0x90) || (first == 0xF4 && byte(1) >= 0x90))) return 0;
  return length;
}

std::string lowered(std::string_view text) {
  std::string result(text);
  for (char& letter : result)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return result;
}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || harmful(code_point(text.substr(0, length)))) {
      out += blank(text[0]) ? ' ' : '?';
      text.remove_prefix(std::max<std::size_t>(length, 1));
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string printable_lines(std::string_view text) {
  std::string out;
  std::string_view between;
  for (const std::string_view line : split(text, '\n')) {
    out += between;
    out += printable(line);
    between = "\n";
  }
  return out;
}

std::string for_markup(std::string_view text) {
  std::string out;
  for (const char c : printable_lines(text)) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  return out;
}

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

std::string shell_line(const std::vector<std::string>& words) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) {
      line += word;
      continue;
    }
    line += '\'';
    for (const char c : word) line += c == '\'' ? std::string("'\\''") : std::string(1, c);
    line += '\'';
  }
  return line;
}

}  // namespace lull
