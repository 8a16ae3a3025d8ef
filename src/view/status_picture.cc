#include "view/status_picture.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/calendar.h"

namespace lull {

std::string StatusPictures::next(const StatusView& view, const Screen& screen) {
  switch (format_) {
    case StatusFormat::json: return status_json(view, every_ ? -1 : 2) + "\n";
    case StatusFormat::csv: return (std::exchange(headed_, true) ? "" : status_csv_header()) + status_csv(view);
    case StatusFormat::table: break;
  }
  std::vector<std::string> lines = status_table(view, screen);
  if (view.devices.empty()) lines = {"no GPU"};
  if (processes_ && !view.devices.empty()) {
    lines.emplace_back();
    std::ranges::copy(process_table(view, screen), std::back_inserter(lines));
  }
  if (view.devices.size() > 1) lines.push_back(fit(status_summary(view), screen.width, screen.utf8));
  std::string text = every_ ? format_rfc3339(view.snapshot.wall) + "\n" : "";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace lull
