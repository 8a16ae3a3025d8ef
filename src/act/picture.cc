#include "act/picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::size_t kMostRows = 16;  // of GPUs
constexpr double kLetter = 6.2;        // the width of one, about; of most fonts
constexpr double kWideLetter = 7.2;    // of wide fonts
constexpr const char* kGap = "a gap is unknown";
constexpr int kLeft = 64;
constexpr int kAside = 48;  // for the newest value, to the right of the curve
constexpr int kTop = 48;
constexpr int kRow = 44;
constexpr int kHeight = 32;  // of the curve in a row

// Who looks at it may prefer dark.
constexpr std::string_view kPictureStyle =
    "<style>.lp-ground{fill:#fff}.lp-row{fill:#f4f4f4}.lp-area{fill:#cfe3f7}.lp-line{fill:none;stroke:#1f6fb4;"
    "stroke-width:1.5}.lp text{fill:#1a1f2b}.lp .lp-dim{fill:#555}@media(prefers-color-scheme:dark){.lp-ground{fill:"
    "#1a1f29}.lp-row{fill:#262d39}.lp-area{fill:#35507f}.lp-line{stroke:#6f9cf5}.lp text{fill:#e6e9ef}.lp .lp-dim{fill:"
    "#94a0b4}}</style>\n";

struct Cell {
  double from = 0;  // in the window: 0 to 1
  double to = 0;
  double value = kUnknown;
};

struct Row {
  std::string gpu;
  Metric metric = Metric::util;
  bool share = false;
  bool highest = true;  // in each part of the time; else the lowest
  std::vector<Cell> cells;
  double whole = kUnknown;  // what the value is a part of, where that is known

  double newest() const { return cells.empty() ? kUnknown : cells.back().value; }
  std::string_view signal() const { return info(metric).name; }
};

Row row_of(const Story& story) {
  Row row{.gpu = story.gpu, .metric = story.metric, .share = story.share, .highest = story.high_is_worse, .cells = {}};
  const auto count = static_cast<double>(story.trace.size());
  for (std::size_t i = 0; i < story.trace.size(); ++i)
    row.cells.push_back(
        {static_cast<double>(i) / count, static_cast<double>(i + 1) / count, static_cast<double>(story.trace[i])});
  return row;
}

std::vector<Row> rows_of(const Explanation& why) {
  std::vector<Row> rows;
  const auto add = [&](Metric metric) {
    for (const Story& story : why.stories)
      if (story.metric == metric && !story.gpu.empty() && !story.trace.empty()) rows.push_back(row_of(story));
  };
  add(Metric::util);
  for (const Story& story : why.stories)
    if (rows.empty() && !story.gpu.empty()) add(story.metric);
  return rows;
}

const Story* story_of(const Explanation& why, const std::string& gpu, Metric metric) {
  for (const Story& story : why.stories)
    if (story.gpu == gpu && story.metric == metric && !story.trace.empty()) return &story;
  return nullptr;
}

std::vector<Row> recorded_rows(const FiringFacts& facts, const Device& device, const Past& past) {
  std::vector<Row> rows;
  const std::string gpu = device.label();
  const Instant end = facts.snapshot.at;
  const Instant begin = end - facts.why.window;
  const Reading* const reading = facts.snapshot.inventory ? facts.snapshot.find(device.id()) : nullptr;
  const auto known = [](const Cell& cell) { return !std::isnan(cell.value); };
  for (const Metric metric : Past::metrics()) {
    const Story* const story = story_of(facts.why, gpu, metric);
    Row row{.gpu = gpu, .metric = metric, .highest = story == nullptr || story->high_is_worse, .cells = {}};
    for (const Past::Cell& cell : past.cells(device.id(), metric, begin, end)) {
      const auto place = [&](Instant at) { return to_seconds(at - begin) / to_seconds(facts.why.window); };
      row.cells.push_back({place(cell.from), place(cell.to), static_cast<double>(row.highest ? cell.high : cell.low)});
    }
    if (info(metric).whole && reading != nullptr) row.whole = (*reading)[*info(metric).whole];
    if (std::ranges::none_of(row.cells, known) && story != nullptr) row = row_of(*story);
    if (std::ranges::any_of(row.cells, known)) rows.push_back(std::move(row));
  }
  for (const Story& story : facts.why.stories)
    if (story.gpu == gpu && !story.trace.empty() && std::ranges::find(rows, story.metric, &Row::metric) == rows.end())
      rows.push_back(row_of(story));
  return rows;
}

// What the top of a row stands for: the same for all rows of a signal.
std::map<std::pair<Metric, bool>, double> tops_of(const std::vector<Row>& rows) {
  std::map<std::pair<Metric, bool>, double> tops;
  for (const Row& row : rows) {
    double& top = tops[{row.metric, row.share}];
    if (info(row.metric).unit == Unit::percent || row.share) top = 100;
    if (!row.share) top = std::fmax(top, row.whole);
    if (std::isnan(row.whole) && info(row.metric).unit != Unit::percent && !row.share)
      for (const Cell& cell : row.cells) top = std::fmax(top, cell.value);
  }
  for (auto& [signal, top] : tops)
    if (!(top > 0)) top = 1;
  return tops;
}

class Drawing {
 public:
  explicit Drawing(int width) : width_(width), right_(width - kAside) {}

  static std::string text_at(int x, int y, std::string_view text, std::string_view more = "") {
    return fmt::format("<text x=\"{}\" y=\"{}\"{}>{}</text>\n", x, y, more, for_markup(text));
  }

  // A line of text, cut where it would leave the picture. What only a wide font would not fit in is drawn narrower.
  std::string line_at(int x, int y, std::string_view text, std::string_view more) const {
    const int space = width_ - 12 - x;
    const auto most = static_cast<std::size_t>(space / kLetter);
    const std::string shown = text.size() <= most ? std::string(text) : std::string(text.substr(0, most - 2)) + " …";
    if (static_cast<double>(std::min(text.size(), most)) * kWideLetter <= space) return text_at(x, y, shown, more);
    return text_at(x, y, shown, fmt::format("{} textLength=\"{}\" lengthAdjust=\"spacingAndGlyphs\"", more, space));
  }

  // The curve in steps, with an area below it; a cell that is unknown parts it.
  std::string curve(const Row& row, int top, double most) const {
    std::string line;
    std::string area;
    const int floor = top + kHeight;
    bool joined = false;
    for (const Cell& cell : row.cells) {
      if (std::isnan(cell.value)) {
        joined = false;
        continue;
      }
      const double from = x_of(cell.from);
      const double to = x_of(cell.to);
      const double height = floor - kHeight * std::clamp(cell.value / most, 0.0, 1.0);
      line += fmt::format("{}{:.1f} {:.1f}H{:.1f}", joined ? "L" : "M", from, height, to);
      area += fmt::format("M{:.1f} {}V{:.1f}H{:.1f}V{}Z", from, floor, height, to, floor);
      joined = true;
    }
    return fmt::format("<path d=\"{}\" class=\"lp-area\"/>\n<path d=\"{}\" class=\"lp-line\"/>\n", area, line);
  }

  std::string row(const Row& row, int top, double most, bool named) const {
    const int middle = top + kHeight / 2 + 4;
    std::string svg = fmt::format("<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" class=\"lp-row\"/>\n", kLeft, top,
                                  right_ - kLeft, kHeight);
    svg += curve(row, top, most);
    svg += text_at(12, named ? middle - 8 : middle, "GPU " + row.gpu);
    if (named) svg += text_at(12, middle + 8, row.signal(), " class=\"lp-dim\"");
    return svg + text_at(right_ + 6, middle, value_text(row.metric, row.newest(), row.share));
  }

  int right() const { return right_; }

 private:
  double x_of(double share) const { return kLeft + (right_ - kLeft) * std::clamp(share, 0.0, 1.0); }

  int width_;
  int right_;
};

// "util: the highest, effort: the lowest value in each part of the time"
std::string meaning_of(const std::vector<Row>& rows, std::string_view between) {
  std::string names;
  std::string parts;
  bool alike = true;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto same = [&](const Row& one) { return one.metric == rows[i].metric; };
    if (std::ranges::any_of(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(i), same)) continue;
    const std::string_view which = rows[i].highest ? "highest" : "lowest";
    alike = alike && rows[i].highest == rows[0].highest;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", rows[i].signal());
    parts += fmt::format("{}{}: the {}", parts.empty() ? "" : ", ", rows[i].signal(), which);
  }
  if (!alike) return parts + " value in each part of the time";
  return fmt::format("{}{}: the {} value in each part of the time", names, between,
                     rows[0].highest ? "highest" : "lowest");
}

std::string drawn(const FiringFacts& facts, std::string_view host, const std::vector<Row>& rows, std::size_t more_gpus,
                  int width) {
  if (rows.empty()) return "";
  const Drawing drawing(width);
  const auto tops = tops_of(rows);
  const bool several = std::ranges::any_of(rows, [&](const Row& row) { return row.metric != rows.front().metric; });
  const bool narrow = width < kPictureWidth;
  const int bottom = kTop + static_cast<int>(rows.size()) * kRow;
  const std::string what = facts.subject.empty() ? labels(facts.scope) : facts.subject;
  const std::string title = fmt::format("{} on {}", what, host);
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"lp\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<title>{2}</title>\n{3}<rect width=\"{0}\" height=\"{1}\" "
      "class=\"lp-ground\"/>\n",
      width, bottom + (narrow ? 56 : 40), for_markup(printable(title)), kPictureStyle);
  svg += drawing.line_at(12, 20, title, " font-weight=\"bold\"");
  svg += drawing.line_at(12, 37, meaning_of(rows, fmt::format(" ({})", facts.why.rule)), " class=\"lp-dim\"");
  for (std::size_t i = 0; i < rows.size(); ++i)
    svg +=
        drawing.row(rows[i], kTop + static_cast<int>(i) * kRow + 6, tops.at({rows[i].metric, rows[i].share}), several);
  const WallTime begin = facts.at - std::chrono::duration_cast<WallTime::duration>(facts.why.window);
  const bool one_day = format_local(begin, "%F") == format_local(facts.at, "%F");
  svg += Drawing::text_at(kLeft, bottom + 16, format_local(begin, "%F %H:%M:%S"));
  svg += Drawing::text_at(drawing.right(), bottom + 16, format_local(facts.at, one_day ? "%H:%M:%S" : "%F %H:%M:%S"),
                          " text-anchor=\"end\"");
  std::string foot;
  for (const auto& [signal, top] : tops)
    foot += fmt::format("{}{}{}", foot.empty() ? "" : ", ", several ? fmt::format("{} ", info(signal.first).name) : "",
                        value_text(signal.first, top, signal.second));
  foot = "top of a row: " + foot;
  if (more_gpus > 0) foot += fmt::format("; and {} more GPUs", more_gpus);
  const int aside = narrow ? 12 : kLeft;
  svg += drawing.line_at(aside, bottom + 32, narrow ? foot : kGap + ("; " + foot), " class=\"lp-dim\"");
  if (narrow) svg += drawing.line_at(aside, bottom + 48, kGap, " class=\"lp-dim\"");
  return svg + "</svg>\n";
}

}  // namespace

std::string picture_of(const FiringFacts& facts, std::string_view host) {
  std::vector<Row> rows = rows_of(facts.why);
  const std::size_t more = rows.size() - std::min(rows.size(), kMostRows);
  rows.resize(rows.size() - more);
  return drawn(facts, host, rows, more, kPictureWidth);
}

std::string picture_of(const FiringFacts& facts, std::string_view host, const Past& past, int width) {
  std::vector<Row> rows;
  std::size_t gpus = 0;
  for (const Device& device : facts.scope) {
    if (!facts.why.ids.empty() && std::ranges::find(facts.why.ids, device.id()) == facts.why.ids.end()) continue;
    if (++gpus > kMostRows) continue;
    for (Row& row : recorded_rows(facts, device, past)) rows.push_back(std::move(row));
  }
  if (rows.empty()) return picture_of(facts, host);
  return drawn(facts, host, rows, gpus > kMostRows ? gpus - kMostRows : 0, width);
}

namespace {

constexpr std::size_t kMostParts = 64;   // of a level: the oldest is no longer than a 64th of what lies behind it
constexpr std::size_t kMostLevels = 24;  // 2^30 samples
constexpr std::array<std::string_view, 3> kNames = {"util", "power", "effort"};

}  // namespace

const std::vector<Metric>& Past::metrics() {
  static const std::vector<Metric> all = [] {
    std::vector<Metric> found;
    for (const std::string_view name : kNames)
      if (const auto metric = metric_by_name(name)) found.push_back(*metric);
    return found;
  }();
  return all;
}

void Past::add(const Snapshot& snapshot) {
  if (!snapshot.inventory) return;
  const auto& devices = snapshot.inventory->devices;
  // A value is of the time since the sample before, of which there was none at first.
  Part part{levels_.empty() ? snapshot.at : newest_, snapshot.at, {}};
  part.values.resize(gpus_.size() * metrics().size());
  for (std::size_t i = 0; i < std::min(devices.size(), snapshot.readings.size()); ++i) {
    const DeviceId id = devices[i].id();
    const auto place = static_cast<std::size_t>(std::ranges::find(gpus_, id) - gpus_.begin());
    if (place == gpus_.size()) {
      gpus_.push_back(id);
      part.values.resize(gpus_.size() * metrics().size());
    }
    for (std::size_t m = 0; m < metrics().size(); ++m) {
      const auto value = static_cast<float>(snapshot.readings[i][metrics()[m]]);
      part.values[place * metrics().size() + m] = {value, value};
    }
  }
  newest_ = snapshot.at;
  if (levels_.empty()) levels_.emplace_back();
  levels_[0].push_back(std::move(part));
  for (std::size_t level = 0; level < levels_.size() && levels_[level].size() > kMostParts; ++level) {
    Part older = joined(levels_[level][0], levels_[level][1]);
    levels_[level].erase(levels_[level].begin(), levels_[level].begin() + 2);
    if (level + 1 == kMostLevels) break;
    if (level + 1 == levels_.size()) levels_.emplace_back();
    levels_[level + 1].push_back(std::move(older));
  }
}

Past::Part Past::joined(const Part& older, const Part& newer) {
  Part part{older.from, newer.to, {}};
  part.values.resize(std::max(older.values.size(), newer.values.size()));
  for (std::size_t i = 0; i < std::min(older.values.size(), newer.values.size()); ++i) {
    const Value& a = older.values[i];
    const Value& b = newer.values[i];
    if (!std::isnan(a.low) && !std::isnan(b.low)) part.values[i] = {std::min(a.low, b.low), std::max(a.high, b.high)};
  }
  return part;
}

std::vector<Past::Cell> Past::cells(const DeviceId& gpu, Metric metric, Instant begin, Instant end) const {
  std::vector<Cell> found;
  const auto place = static_cast<std::size_t>(std::ranges::find(gpus_, gpu) - gpus_.begin());
  const auto column = static_cast<std::size_t>(std::ranges::find(metrics(), metric) - metrics().begin());
  if (place == gpus_.size() || column == metrics().size()) return found;
  const std::size_t at = place * metrics().size() + column;
  for (std::size_t level = levels_.size(); level-- > 0;)
    for (const Part& part : levels_[level]) {
      if (part.to <= begin || part.to > end) continue;
      const Value value = at < part.values.size() ? part.values[at] : Value{};
      found.push_back({std::max(part.from, begin), part.to, value.low, value.high});
    }
  return found;
}

}  // namespace lull
