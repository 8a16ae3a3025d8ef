#include "view/status_picture.h"

#include <fmt/format.h>

#include <utility>

#include "base/calendar.h"
#include "base/units.h"

namespace lull {

std::string StatusPictures::next(const StatusView& view, const Screen& screen) {
  switch (format_) {
    case StatusFormat::json: return status_json(view, every_ ? -1 : 2) + "\n";
    case StatusFormat::csv: return (std::exchange(headed_, true) ? "" : status_csv_header()) + status_csv(view);
    case StatusFormat::table: break;
  }
  std::vector<std::string> lines = status_table(view, screen);
  if (view.devices.empty()) lines = {"no GPU"};
  if (every_ && terminal_) return redrawn(view, lines, screen);
  std::string text = every_ ? format_rfc3339(view.snapshot.wall) + "\n" : "";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// Each line is cleared to its end after it is written, and the screen below the
// last one: nothing flickers, and nothing of a longer picture is left over.
std::string StatusPictures::redrawn(const StatusView& view, const std::vector<std::string>& lines,
                                    const Screen& screen) {
  std::string text = drawn_ == 0 ? "\033[?25l" : fmt::format("\033[{}A\r", drawn_);
  const std::string when =
      fmt::format("{}   every {}, Ctrl-C ends", format_local(view.snapshot.wall, "%H:%M:%S"), format_duration(*every_));
  text += paint(fit(when, screen.width, screen.utf8), Tone::dim, screen) + "\033[K\n";
  // A picture taller than the screen cannot be drawn over: the rest is said, not shown.
  const std::size_t room = screen.height > 3 ? screen.height - 2 : 1;
  const bool cut = lines.size() > room;
  const std::size_t shown = cut ? room - 1 : lines.size();
  for (std::size_t i = 0; i < shown; ++i) text += lines[i] + "\033[K\n";
  if (cut) text += fmt::format("+{} more rows\033[K\n", lines.size() - shown);
  drawn_ = 1 + shown + (cut ? 1 : 0);
  return text + "\033[J";
}

}  // namespace lull
