#include "view/live.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "base/text.h"
#include "base/units.h"
#include "gpu/metric.h"
#include "view/holders.h"

namespace lull {
namespace {

constexpr std::array<std::string_view, 4> kSortWords = {"GPU", "util", "memory", "idle for"};

// All words by which a person may look for a GPU.
std::string words_of(const StatusView& view, std::size_t row) {
  const Device& device = view.snapshot.inventory->devices[view.devices[row]];
  const Reading& reading = view.snapshot.readings[view.devices[row]];
  std::string text = fmt::format("gpu{} {} {} ", device.label(), device.name, device.uuid);
  for (const Tenant& tenant : holders(reading))
    if (const ProcessInfo* process = known_process(tenant, view.snapshot))
      text += fmt::format("{} {} {} ", process->user, tenant.pid, process->command_line());
  if (row < view.extras.size() && view.extras[row].lease)
    text += view.extras[row].lease->user + " " + view.extras[row].lease->command;
  return lowered(text);
}

// What people call unknown goes last, whatever the order.
double weight(const StatusView& view, std::size_t row, LiveScreen::Sort sort) {
  const Reading& reading = view.snapshot.readings[view.devices[row]];
  double value = kUnknown;
  if (sort == LiveScreen::Sort::util) value = reading[Metric::util];
  if (sort == LiveScreen::Sort::memory) value = reading[Metric::mem_used];
  if (sort == LiveScreen::Sort::idle && row < view.extras.size() && view.extras[row].idle_for)
    value = std::chrono::duration<double>(*view.extras[row].idle_for).count();
  return std::isnan(value) ? -1 : value;
}

std::string basis_text(Basis basis, double coverage) {
  switch (basis) {
    case Basis::mean: return fmt::format("mean since the sample before, {:.0f} % of it measured", coverage * 100);
    case Basis::moments:
      return fmt::format("many moments since the sample before, {:.0f} % of it covered", coverage * 100);
    case Basis::instant: return "of the moment only";
    case Basis::unknown: break;
  }
  return {};
}

}  // namespace

bool LiveScreen::press(const Key& key) {
  const std::size_t last = rows_ > 0 ? rows_ - 1 : 0;
  if (typing_ && (key.kind == KeyKind::text || key.kind == KeyKind::backspace || key.kind == KeyKind::enter ||
                  key.kind == KeyKind::escape)) {
    if (key.kind == KeyKind::text) filter_ += key.text;
    if (key.kind == KeyKind::backspace)
      while (!filter_.empty()) {
        const bool middle = (static_cast<unsigned char>(filter_.back()) & 0xC0) == 0x80;
        filter_.pop_back();
        if (!middle) break;
      }
    if (key.kind == KeyKind::escape) filter_.clear();
    if (key.kind == KeyKind::enter || key.kind == KeyKind::escape) typing_ = false;
    marked_ = top_ = 0;
    return true;
  }
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
      if (letter == 's') sort_ = static_cast<Sort>((static_cast<unsigned>(sort_) + 1) % kSortWords.size());
      break;
    }
    default: break;
  }
  return true;
}

StatusView LiveScreen::chosen(const StatusView& view) const {
  std::vector<std::size_t> rows(view.devices.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  if (!filter_.empty())
    std::erase_if(rows, [&](std::size_t row) { return !words_of(view, row).contains(lowered(filter_)); });
  if (sort_ != Sort::gpu)
    std::ranges::stable_sort(rows, std::greater<>(), [&](std::size_t row) { return weight(view, row, sort_); });
  StatusView result{view.snapshot, {}, {}};
  for (const std::size_t row : rows) {
    result.devices.push_back(view.devices[row]);
    result.extras.push_back(row < view.extras.size() ? view.extras[row] : StatusExtra{});
  }
  return result;
}

// What is known of the marked GPU, and why the rest is not.
std::vector<std::string> LiveScreen::why(const StatusView& view, const Screen& screen) const {
  const Device& device = view.snapshot.inventory->devices[view.devices[marked_]];
  const Reading& reading = view.snapshot.readings[view.devices[marked_]];
  std::vector<std::string> lines = {"",
                                    fmt::format("GPU {}  {}  {}", device.label(), printable(device.name), device.uuid)};
  if (const std::string trouble = device_trouble(device, reading); !trouble.empty()) lines.push_back("  " + trouble);
  if (const std::string text = basis_text(reading.util_basis, reading.util_coverage); !text.empty())
    lines.push_back("  util: " + text);
  if (const std::string text = basis_text(reading.power_basis, reading.power_coverage); !text.empty())
    lines.push_back("  power: " + text);
  std::string missing;
  for (const MetricInfo& metric : kMetricTable)
    if (const Absence absence = reading.why_missing(metric.metric);
        absence != Absence::none && absence != Absence::not_asked)
      missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", metric.name, words(absence));
  if (!missing.empty()) lines.push_back("  unknown: " + missing);
  if (lines.size() == 2) lines.emplace_back("  everything that was asked for is known");
  for (std::string& line : lines) line = fit(for_screen(line, screen), screen.width, screen.utf8);
  return lines;
}

std::vector<std::string> LiveScreen::below(const StatusView& view, const Screen& screen) const {
  std::vector<std::string> lines;
  if (help_)
    for (const std::string_view line :
         {"", "arrows, j, k, PgUp, PgDn  move      s  sort by the next column      /  show only what matches",
          "p  processes      e  what is known of the marked GPU, and why not more      Esc  back      q  leave"})
      lines.push_back(fit(line, screen.width, screen.utf8));
  if (view.devices.empty()) return lines;
  if (why_) std::ranges::copy(why(view, screen), std::back_inserter(lines));
  if (processes_) {
    lines.emplace_back();
    std::ranges::copy(process_table(view, screen), std::back_inserter(lines));
  }
  return lines;
}

std::string LiveScreen::foot(std::size_t hidden_above, std::size_t hidden_below) const {
  if (typing_) return fmt::format("show only: {}_   (Enter keeps it, Esc clears it)", filter_);
  std::string text;
  if (hidden_above + hidden_below > 0) text = fmt::format("{} more above, {} below   ", hidden_above, hidden_below);
  if (!filter_.empty()) text += fmt::format("only '{}'   ", filter_);
  return text + fmt::format("by {}   q leave  s sort  / filter  p processes  e why  h help",
                            kSortWords[static_cast<std::size_t>(sort_)]);
}

std::vector<std::string> LiveScreen::draw(const StatusView& view, const std::string& heading, const Screen& screen) {
  StatusView shown = chosen(view);
  rows_ = shown.devices.size();
  marked_ = std::min(marked_, rows_ > 0 ? rows_ - 1 : 0);
  if (why_ || rows_ > page_) shown.marked = marked_;
  const std::vector<std::string> table = status_table(shown, screen);  // titles, then a line per GPU
  const std::vector<std::string> more = below(shown, screen);

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
  const std::string summary = heading + "   " + status_summary(view);
  lines.push_back(paint(fit(summary, screen.width, screen.utf8), Tone::dim, screen));
  lines.push_back(table.front());
  for (std::size_t row = top_; row < end; ++row) lines.push_back(table[row + 1]);
  if (rows_ == 0) lines.push_back(fit(filter_.empty() ? "no GPU" : "no GPU matches", screen.width, screen.utf8));
  std::ranges::copy_n(more.begin(), static_cast<std::ptrdiff_t>(extra), std::back_inserter(lines));
  if (screen.height == 0) return {};
  lines.resize(screen.height - 1);
  lines.push_back(
      paint(fit(for_screen(foot(top_, rows_ - end), screen), screen.width, screen.utf8), Tone::dim, screen));
  return lines;
}

}  // namespace lull
