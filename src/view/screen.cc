#include "view/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>

#include "base/text.h"

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

}  // namespace lull
