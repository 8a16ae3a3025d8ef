#include "act/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::size_t kMostRows = 16;
constexpr std::size_t kMostLetters = 96;
constexpr int kWidth = 640;
constexpr int kLeft = 64;
constexpr int kRight = 592;  // then the newest value
constexpr int kTop = 48;
constexpr int kRow = 44;
constexpr int kHeight = 32;  // of the curve in a row

// For the text of an SVG file.
std::string for_svg(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += c;
    }
  return out;
}

// Cut where it would leave the picture.
std::string text_at(int x, int y, std::string_view text, std::string_view more = "") {
  std::string shown(text.substr(0, kMostLetters));
  if (shown.size() < text.size()) shown += " …";
  return fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", x, y, more, for_svg(shown));
}

std::vector<const Story*> rows_of(const Explanation& why) {
  std::vector<const Story*> rows;
  const auto add = [&](Metric metric) {
    for (const Story& story : why.stories)
      if (story.metric == metric && !story.gpu.empty() && !story.trace.empty()) rows.push_back(&story);
  };
  add(Metric::util);
  for (const Story& story : why.stories)
    if (rows.empty() && !story.gpu.empty()) add(story.metric);
  return rows;
}

// What the top of a row stands for.
double top_of(const std::vector<const Story*>& rows) {
  if (rows.front()->metric == Metric::util || rows.front()->share) return 100;
  double most = 0;
  for (const Story* row : rows)
    for (const float value : row->trace) most = std::fmax(most, static_cast<double>(value));
  return most > 0 ? most : 1;
}

// The curve in steps, with an area below it; a cell that is unknown parts it.
std::string curve(const Story& story, int top, double most) {
  std::string line;
  std::string area;
  const auto cells = static_cast<double>(story.trace.size());
  const int floor = top + kHeight;
  for (std::size_t i = 0; i < story.trace.size(); ++i) {
    const auto value = static_cast<double>(story.trace[i]);
    if (std::isnan(value)) continue;
    const double from = kLeft + (kRight - kLeft) * static_cast<double>(i) / cells;
    const double to = kLeft + (kRight - kLeft) * static_cast<double>(i + 1) / cells;
    const double height = floor - kHeight * std::clamp(value / most, 0.0, 1.0);
    const bool joined = i > 0 && !std::isnan(story.trace[i - 1]);
    line += fmt::format("{}{:.1f} {:.1f}H{:.1f}", joined ? "L" : "M", from, height, to);
    area += fmt::format("M{:.1f} {}V{:.1f}H{:.1f}V{}Z", from, floor, height, to, floor);
  }
  return fmt::format(
      "<path d=\"{}\" fill=\"#cfe3f7\"/>\n<path d=\"{}\" fill=\"none\" stroke=\"#1f6fb4\" stroke-width=\"1.5\"/>\n",
      area, line);
}

}  // namespace

std::string picture_of(const FiringFacts& facts, std::string_view host) {
  const std::vector<const Story*> rows = rows_of(facts.why);
  if (rows.empty()) return "";
  const std::size_t shown = std::min(rows.size(), kMostRows);
  const double most = top_of(rows);
  const int bottom = kTop + static_cast<int>(shown) * kRow;
  const std::string what = facts.subject.empty() ? labels(facts.scope) : facts.subject;
  const std::string title = fmt::format("{} on {}", what, host);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<title>{2}</title>\n<rect width=\"{0}\" height=\"{1}\" "
      "fill=\"#fff\"/>\n",
      kWidth, bottom + 40, for_svg(title));
  svg += text_at(12, 20, title, " font-weight=\"bold\"");
  svg += text_at(12, 37,
                 fmt::format("{} ({}): the {} value in each part of the time", info(rows[0]->metric).name,
                             facts.why.rule, rows[0]->high_is_worse ? "highest" : "lowest"),
                 " fill=\"#555\"");
  for (std::size_t i = 0; i < shown; ++i) {
    const int top = kTop + static_cast<int>(i) * kRow + 6;
    svg += fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"#f4f4f4\"/>\n", kLeft, top,
                       kRight - kLeft, kHeight);
    svg += curve(*rows[i], top, most);
    svg += text_at(12, top + kHeight / 2 + 4, "GPU " + rows[i]->gpu);
    svg += text_at(kRight + 6, top + kHeight / 2 + 4,
                   value_text(rows[i]->metric, static_cast<double>(rows[i]->trace.back()), rows[i]->share));
  }
  const WallTime begin = facts.at - std::chrono::duration_cast<WallTime::duration>(facts.why.window);
  const bool one_day = format_local(begin, "%F") == format_local(facts.at, "%F");
  svg += text_at(kLeft, bottom + 16, format_local(begin, "%F %H:%M:%S"));
  svg += text_at(kRight, bottom + 16, format_local(facts.at, one_day ? "%H:%M:%S" : "%F %H:%M:%S"),
                 " text-anchor=\"end\"");
  std::string foot = fmt::format("top of a row: {}; a gap: unknown", value_text(rows[0]->metric, most, rows[0]->share));
  if (shown < rows.size()) foot += fmt::format("; and {} more GPUs", rows.size() - shown);
  svg += text_at(kLeft, bottom + 32, foot, " fill=\"#555\"");
  return svg + "</svg>\n";
}

}  // namespace lull
