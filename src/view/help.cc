#include "view/help.h"

#include <algorithm>

#include "base/text.h"
#include "view/columns.h"
#include "view/screen.h"

namespace lull {
namespace {

constexpr std::size_t kIndent = 2;
constexpr std::size_t kWidestName = 24;  // a longer one has a line of its own
constexpr std::size_t kLeastText = 24;   // with less room than this beside the names, the text stands below them

// Where the text of an entry begins, behind its name and two blanks or more; npos: it has none.
std::size_t text_begins(std::string_view line) {
  const std::size_t name = line.find_first_not_of(' ');
  const std::size_t gap = line.find("  ", name);
  return gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
}

std::string entry(std::string_view line, std::size_t width) {
  const std::size_t begins = text_begins(line);
  if (display_width(line) <= width || begins == std::string_view::npos) return std::string(line);
  const std::size_t indent = display_width(line.substr(0, begins));
  if (indent + kLeastText > width) return wrapped(line, width, 2 * kIndent);
  return wrapped(line, width, indent);
}

std::string rows_text(std::string_view title, const std::vector<HelpRow>& rows, std::size_t width) {
  if (rows.empty()) return {};
  std::size_t widest = 0;
  for (const HelpRow& row : rows)
    if (const std::size_t cells = display_width(row.name); cells <= kWidestName) widest = std::max(widest, cells);
  const std::size_t beside = kIndent + widest + 2;
  const std::size_t column = beside + kLeastText <= width ? beside : 3 * kIndent;
  std::string text = "\n" + std::string(title) + ":\n";
  for (const HelpRow& row : rows) {
    std::string line = std::string(kIndent, ' ') + row.name;
    const std::string words = wrapped(std::string(column, ' ') + row.text, width, column);
    const std::size_t used = display_width(line);
    if (used + 2 <= column)
      line += std::string(column - used, ' ') + words.substr(column);
    else
      line += "\n" + words;
    text += line + "\n";
  }
  return text;
}

}  // namespace

std::string set_paragraphs(std::string_view text, std::size_t width) {
  std::string out;
  std::string paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) out += wrapped(paragraph, width) + "\n";
    paragraph.clear();
  };
  while (text.ends_with('\n')) text.remove_suffix(1);
  while (text.starts_with('\n')) text.remove_prefix(1);
  for (const std::string_view line : split(text, '\n')) {
    if (line.empty() || line.front() == ' ') {
      flush();
      out += entry(line, width) + "\n";
    } else {
      paragraph += (paragraph.empty() ? "" : " ") + std::string(line);
      if (line.ends_with(':')) flush();
    }
  }
  flush();
  return out;
}

std::string help_text(const Help& help, std::size_t width) {
  std::string text = set_paragraphs(help.about, width) + "\n" + wrapped("usage: " + help.usage, width, 7) + "\n";
  text += rows_text("arguments", help.arguments, width) + rows_text("options", help.options, width);
  if (!help.more.empty()) text += "\n" + set_paragraphs(help.more, width);
  return text;
}

std::size_t help_width(int fd) {
  const std::size_t width = screen_of(fd).width;
  return width > 1000 ? 80 : std::clamp<std::size_t>(width, 40, 100);
}

}  // namespace lull
