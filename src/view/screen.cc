#include "view/screen.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::size_t kUncut = 1U << 20;  // a pipe or a file has no edge

std::string_view variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

// The first of the three that is set decides, as setlocale(3) has it.
bool locale_is_utf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    std::string value(variable(name));
    if (value.empty()) continue;
    std::transform(value.begin(), value.end(), value.begin(), [](unsigned char c) { return std::tolower(c); });
    return value.find("utf-8") != std::string::npos || value.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

Screen screen_of(int fd) {
  Screen screen;
  const bool terminal = ::isatty(fd) == 1;
  winsize size{};
  const bool sized = terminal && ::ioctl(fd, TIOCGWINSZ, &size) == 0;
  if (sized && size.ws_row > 0) screen.height = size.ws_row;
  if (const auto columns = to_unsigned(variable("COLUMNS")); columns && *columns > 0)
    screen.width = sized && size.ws_col > 0 ? std::min<std::size_t>(*columns, size.ws_col) : *columns;
  else if (sized && size.ws_col > 0)
    screen.width = size.ws_col;
  else
    screen.width = terminal ? 80 : kUncut;
  screen.utf8 = locale_is_utf8();
  screen.colour = terminal && variable("NO_COLOR").empty() && variable("TERM") != "dumb";
  return screen;
}

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

std::string ProgressBar::draw(double part, Instant now) {
  if (now - start_ < std::chrono::seconds(1)) return "";
  if (shown_ && now - drawn_ < std::chrono::milliseconds(100)) return "";
  drawn_ = now;
  shown_ = true;
  constexpr int kWidth = 40;
  const int full = static_cast<int>(std::clamp(part, 0.0, 1.0) * kWidth);
  const double passed = std::chrono::duration<double>(now - start_).count();
  const std::string left =
      part > 0.02 ? ", " + format_duration(std::chrono::seconds(std::lround(passed / part - passed))) + " left" : "";
  return fmt::format("\r\033[K[{}{}] {:3.0f} %{}", std::string(static_cast<std::size_t>(full), '#'),
                     std::string(static_cast<std::size_t>(kWidth - full), '.'), 100 * part, left);
}

}  // namespace lull
