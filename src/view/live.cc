#include "view/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/text.h"

namespace lull {

// Letters and their like while the filter is typed; false: the key is none of them.
bool LiveScreen::type(const Key& key) {
  switch (key.kind) {
    case KeyKind::text: filter_ += key.text; break;
    case KeyKind::backspace:
      while (!filter_.empty()) {
        const bool middle = (static_cast<unsigned char>(filter_.back()) & 0xC0) == 0x80;
        filter_.pop_back();
        if (!middle) break;
      }
      break;
    case KeyKind::escape: filter_.clear(); [[fallthrough]];
    case KeyKind::enter: typing_ = false; break;
    default: return false;
  }
  marked_ = top_ = 0;
  return true;
}

bool LiveScreen::press(const Key& key) {
  const std::size_t last = rows_ > 0 ? rows_ - 1 : 0;
  if (typing_ && type(key)) return true;
  switch (key.kind) {
    case KeyKind::up: marked_ -= marked_ > 0 ? 1 : 0; break;
    case KeyKind::down: marked_ = std::min(last, marked_ + 1); break;
    case KeyKind::page_up: marked_ -= std::min(marked_, page_); break;
    case KeyKind::page_down: marked_ = std::min(last, marked_ + page_); break;
    case KeyKind::home: marked_ = 0; break;
    case KeyKind::end: marked_ = last; break;
    case KeyKind::escape:
      if (!help_ && !why_ && !processes_ && filter_.empty()) return true;
      help_ = why_ = processes_ = false;
      filter_.clear();
      break;
    case KeyKind::text: {
      const char letter = key.text.front();
      if (letter == 'q' || letter == 'Q') return false;
      if (letter == 'p') processes_ = !processes_;
      if (letter == 'e') why_ = !why_;
      if (letter == '/') typing_ = true;
      if (letter == 'h' || letter == '?') help_ = !help_;
      if (letter == 'j') marked_ = std::min(last, marked_ + 1);
      if (letter == 'k') marked_ -= marked_ > 0 ? 1 : 0;
      if (letter == 's') {
        ++order_;
        marked_ = top_ = 0;  // who asks for another order wants to see its beginning
      }
      break;
    }
    default: break;
  }
  return true;
}

std::vector<std::size_t> LiveScreen::chosen(const LiveRows& rows) const {
  std::vector<std::size_t> shown(rows.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (!filter_.empty())
    std::erase_if(shown, [&](std::size_t row) { return !rows.words(row).contains(lowered(filter_)); });
  if (const std::size_t order = order_ % rows.orders().size(); order > 0)
    std::ranges::stable_sort(shown, std::greater<>(), [&](std::size_t row) {
      const double weight = rows.weight(row, order);
      return std::isnan(weight) ? -1 : weight;
    });
  return shown;
}

std::vector<std::string> LiveScreen::below(const LiveRows& rows, std::span<const std::size_t> shown,
                                           const Screen& screen) const {
  std::vector<std::string> lines;
  const auto put = [&](std::string_view line) {
    const std::string broken = wrapped(for_screen(line, screen), screen.width, 4);
    for (const std::string_view part : split(broken, '\n')) lines.push_back(fit(part, screen.width, screen.utf8));
  };
  if (help_) {
    put("");
    put("arrows, j, k   move; PgUp, PgDn, Home and End too");
    put("s  sort by the next column        /  show only what matches");
    put(fmt::format("e  what is known of the marked {}, and why not more", rows.noun()));
    put(fmt::format("{}Esc  back        q  leave", rows.has_processes() ? "p  processes        " : ""));
  }
  if (shown.empty()) return lines;
  if (why_) {
    put("");
    for (const std::string& line : rows.why(shown[marked_])) put(line);
  }
  if (processes_ && rows.has_processes()) {
    put("");
    std::ranges::copy(rows.processes(shown, screen), std::back_inserter(lines));
  }
  return lines;
}

std::string LiveScreen::foot(const LiveRows& rows, std::size_t hidden_above, std::size_t hidden_below) const {
  if (typing_) return fmt::format("show only: {}_   (Enter keeps it, Esc clears it)", filter_);
  std::string text;
  if (hidden_above > 0) text = fmt::format("{} more above", hidden_above);
  if (hidden_below > 0)
    text += fmt::format("{}{} {}below", text.empty() ? "" : ", ", hidden_below, text.empty() ? "more " : "");
  if (!text.empty()) text += "   ";
  if (!filter_.empty()) text += fmt::format("only '{}'   ", filter_);
  return text + fmt::format("by {}   q leave  s sort  / filter{}  e why  h help",
                            rows.orders()[order_ % rows.orders().size()], rows.has_processes() ? "  p processes" : "");
}

std::vector<std::string> LiveScreen::draw(const LiveRows& rows, const std::string& heading, const Screen& screen) {
  const std::vector<std::size_t> shown = chosen(rows);
  rows_ = shown.size();
  marked_ = std::min(marked_, rows_ > 0 ? rows_ - 1 : 0);
  const bool marking = why_ || rows_ > page_;
  const std::vector<std::string> table = rows.table(shown, marking ? std::optional(marked_) : std::nullopt, screen);
  const std::vector<std::string> more = below(rows, shown, screen);

  const std::size_t fixed = 3;  // heading, titles, foot
  const std::size_t room = screen.height > fixed ? screen.height - fixed : 0;
  // What was asked for below the table gets at most half of the screen, or what the table leaves.
  const std::size_t extra = std::min(more.size(), std::max(room / 2, room - std::min(room, rows_)));
  page_ = std::max<std::size_t>(1, room - extra);
  if (marked_ < top_) top_ = marked_;
  if (marked_ >= top_ + page_) top_ = marked_ - page_ + 1;
  top_ = std::min(top_, rows_ > page_ ? rows_ - page_ : 0);
  const std::size_t end = std::min(rows_, top_ + page_);

  std::vector<std::string> lines;
  const std::string summary = heading + "   " + rows.summary();
  lines.push_back(paint(fit(summary, screen.width, screen.utf8), Tone::dim, screen));
  lines.push_back(table.front());
  for (std::size_t row = top_; row < end; ++row) lines.push_back(table[row + 1]);
  if (rows_ == 0)
    lines.push_back(
        fit(fmt::format("no {}{}", rows.noun(), filter_.empty() ? "" : " matches"), screen.width, screen.utf8));
  std::ranges::copy_n(more.begin(), static_cast<std::ptrdiff_t>(extra), std::back_inserter(lines));
  if (screen.height == 0) return {};
  lines.resize(screen.height - 1);
  lines.push_back(
      paint(fit(for_screen(foot(rows, top_, rows_ - end), screen), screen.width, screen.utf8), Tone::dim, screen));
  return lines;
}

}  // namespace lull
