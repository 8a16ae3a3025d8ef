#include "view/live.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <numeric>

#include "base/text.h"
#include "gpu/metric.h"

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

std::vector<std::string> LiveRows::whole_table(const Screen& screen) const {
  std::vector<std::size_t> all(size());
  std::iota(all.begin(), all.end(), std::size_t{0});
  return table(all, std::nullopt, screen);
}

std::vector<std::size_t> LiveScreen::chosen(const LiveRows& rows) const {
  std::vector<std::size_t> shown(rows.size());
  std::iota(shown.begin(), shown.end(), std::size_t{0});
  if (!filter_.empty())
    std::erase_if(shown, [&](std::size_t row) { return !rows.search_text(row).contains(lowered(filter_)); });
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

// On a narrow screen the keys that matter least go first: none is cut in two.
std::string LiveScreen::foot(const LiveRows& rows, std::size_t hidden_above, std::size_t hidden_below,
                             std::size_t width) const {
  if (typing_) return fmt::format("show only: {}_   (Enter keeps it, Esc clears it)", filter_);
  std::string text;
  if (hidden_above > 0) text = fmt::format("{} more above", hidden_above);
  if (hidden_below > 0)
    text += fmt::format("{}{} {}below", text.empty() ? "" : ", ", hidden_below, text.empty() ? "more " : "");
  if (!text.empty()) text += "   ";
  if (!filter_.empty()) text += fmt::format("only '{}'   ", filter_);
  std::vector<std::string> keys = {fmt::format("by {} ", rows.orders()[order_ % rows.orders().size()]),
                                   "q leave",
                                   "s sort",
                                   "/ filter",
                                   "e why",
                                   "h help"};
  if (rows.has_processes()) keys.insert(keys.begin() + 4, "p processes");
  const auto line = [&] { return text + fmt::format("{}", fmt::join(keys, "  ")); };
  for (const std::string_view least : {"p processes", "e why", "/ filter", "by ", "s sort"}) {
    if (display_width(line()) <= width) break;
    std::erase_if(keys, [&](const std::string& key) { return key.starts_with(least); });
  }
  return line();
}

std::vector<std::string> LiveScreen::draw(const LiveRows& rows, const std::string& heading, const Screen& screen) {
  const std::vector<std::size_t> shown = chosen(rows);
  rows_ = shown.size();
  marked_ = std::min(marked_, rows_ > 0 ? rows_ - 1 : 0);
  const bool marking = why_ || rows_ > page_;
  const std::vector<std::string> table = rows.table(shown, marking ? std::optional(marked_) : std::nullopt, screen);
  const std::vector<std::string> more = below(rows, shown, screen);

  const std::size_t fixed = 3;  // heading, titles, foot
  const std::size_t space = screen.height > fixed ? screen.height - fixed : 0;
  // What was asked for below the table gets at most half of the screen, or what the table leaves.
  const std::size_t extra = std::min(more.size(), std::max(space / 2, space - std::min(space, rows_)));
  page_ = std::max<std::size_t>(1, space - extra);
  if (marked_ < top_) top_ = marked_;
  if (marked_ >= top_ + page_) top_ = marked_ - page_ + 1;
  top_ = std::min(top_, rows_ > page_ ? rows_ - page_ : 0);
  const std::size_t end = std::min(rows_, top_ + page_);

  std::vector<std::string> lines;
  // What the GPUs do is worth more than when that was.
  const bool wide = display_width(heading) + 3 + display_width(rows.summary()) <= screen.width;
  const std::string summary = wide ? heading + "   " + rows.summary() : rows.summary() + "   " + heading;
  lines.push_back(paint(fit(summary, screen.width, screen.utf8), Tone::dim, screen));
  lines.push_back(table.front());
  for (std::size_t row = top_; row < end; ++row) lines.push_back(table[row + 1]);
  if (rows_ == 0)
    lines.push_back(
        fit(fmt::format("no {}{}", rows.noun(), filter_.empty() ? "" : " matches"), screen.width, screen.utf8));
  std::ranges::copy_n(more.begin(), static_cast<std::ptrdiff_t>(extra), std::back_inserter(lines));
  if (screen.height == 0) return {};
  lines.resize(screen.height - 1);
  lines.push_back(paint(fit(for_screen(foot(rows, top_, rows_ - end, screen.width), screen), screen.width, screen.utf8),
                        Tone::dim, screen));
  return lines;
}

namespace {

constexpr char kEscape = '\033';

struct Sequence {
  std::string_view bytes;
  KeyKind kind;
};
// As xterm, the Linux console, screen and tmux send them.
constexpr std::array kSequences = {
    Sequence{"\033[A", KeyKind::up},         Sequence{"\033OA", KeyKind::up},    Sequence{"\033[B", KeyKind::down},
    Sequence{"\033OB", KeyKind::down},       Sequence{"\033[C", KeyKind::right}, Sequence{"\033OC", KeyKind::right},
    Sequence{"\033[D", KeyKind::left},       Sequence{"\033OD", KeyKind::left},  Sequence{"\033[5~", KeyKind::page_up},
    Sequence{"\033[6~", KeyKind::page_down}, Sequence{"\033[H", KeyKind::home},  Sequence{"\033OH", KeyKind::home},
    Sequence{"\033[1~", KeyKind::home},      Sequence{"\033[F", KeyKind::end},   Sequence{"\033OF", KeyKind::end},
    Sequence{"\033[4~", KeyKind::end},
};

// The length of an unknown escape sequence; 0: it is not complete yet.
std::size_t length_of_unknown(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] != '[' && text[1] != 'O') return 2;  // Alt and a letter
  for (std::size_t i = 2; i < text.size(); ++i)
    if (text[i] >= 0x40 && text[i] <= 0x7E) return i + 1;
  return 0;
}

}  // namespace

std::vector<Key> KeyReader::feed(std::string_view bytes) {
  rest_ += bytes;
  std::vector<Key> keys;
  std::string_view text = rest_;
  while (!text.empty()) {
    const char first = text.front();
    if (first == kEscape) {
      const Sequence* known = nullptr;
      for (const Sequence& sequence : kSequences)
        if (text.starts_with(sequence.bytes)) known = &sequence;
      const std::size_t length = known != nullptr ? known->bytes.size() : length_of_unknown(text);
      if (length == 0) break;
      if (known != nullptr) keys.push_back({known->kind});
      text.remove_prefix(length);
    } else if (first == '\r' || first == '\n') {
      keys.push_back({KeyKind::enter});
      text.remove_prefix(1);
    } else if (first == '\b' || first == '\x7f') {
      keys.push_back({KeyKind::backspace});
      text.remove_prefix(1);
    } else {
      const std::size_t length = utf8_length(text);
      if (length == 0 && text.size() < 4 && (static_cast<unsigned char>(first) & 0xC0) == 0xC0) break;  // half a letter
      const std::size_t taken = length == 0 ? 1 : length;
      const bool shown = length > 0 && static_cast<unsigned char>(first) >= 0x20;
      if (shown) keys.push_back({KeyKind::text, std::string(text.substr(0, taken))});
      text.remove_prefix(taken);
    }
  }
  rest_ = std::string(text);
  return keys;
}

std::vector<Key> KeyReader::flush() {
  const bool escape = rest_.starts_with(kEscape);
  rest_.clear();
  return escape ? std::vector<Key>{{KeyKind::escape}} : std::vector<Key>{};
}

namespace {

enum StatusOrder : std::size_t { status_by_gpu, status_by_util, status_by_memory, status_by_idle };
constexpr std::array<std::string_view, 4> kStatusOrders = {"GPU", "util", "memory", "idle for"};

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

std::span<const std::string_view> StatusRows::orders() const { return kStatusOrders; }

std::string StatusRows::search_text(std::size_t row) const {
  const Device& device = view_.snapshot.inventory->devices[view_.devices[row]];
  const Reading& reading = view_.snapshot.readings[view_.devices[row]];
  std::string text = fmt::format("gpu{} {} {} ", device.label(), device.name, device.uuid);
  for (const GpuProcess& process : users(reading))
    if (process.info != nullptr)
      text += fmt::format("{} {} {} ", process.info->user, process.pid, process.info->command_line());
  if (row < view_.extras.size())
    for (const LeaseView& lease : view_.extras[row].leases) text += lease.user + " " + lease.command + " ";
  return lowered(text);
}

double StatusRows::weight(std::size_t row, std::size_t order) const {
  const Reading& reading = view_.snapshot.readings[view_.devices[row]];
  if (order == status_by_util) return reading[Metric::util];
  if (order == status_by_memory) return reading[Metric::mem_used];
  const bool known = row < view_.extras.size() && view_.extras[row].idle_for;
  return known ? std::chrono::duration<double>(*view_.extras[row].idle_for).count() : kUnknown;
}

StatusView StatusRows::only(std::span<const std::size_t> rows) const {
  StatusView result{view_.snapshot, {}, {}};
  for (const std::size_t row : rows) {
    result.devices.push_back(view_.devices[row]);
    result.extras.push_back(row < view_.extras.size() ? view_.extras[row] : StatusExtra{});
  }
  return result;
}

std::vector<std::string> StatusRows::table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                           const Screen& screen) const {
  StatusView shown = only(rows);
  shown.marked = marked;
  return status_table(shown, screen);
}

std::vector<std::string> StatusRows::processes(std::span<const std::size_t> rows, const Screen& screen) const {
  return process_table(only(rows), screen);
}

std::vector<std::string> StatusRows::why(std::size_t row) const {
  const Device& device = view_.snapshot.inventory->devices[view_.devices[row]];
  const Reading& reading = view_.snapshot.readings[view_.devices[row]];
  std::vector<std::string> lines = {fmt::format("GPU {}  {}  {}", device.label(), printable(device.name), device.uuid)};
  if (const std::string trouble = device_trouble(device, reading); !trouble.empty()) lines.push_back("  " + trouble);
  if (const std::string text = basis_text(reading.util_basis, reading.util_coverage); !text.empty())
    lines.push_back("  util: " + text);
  if (const std::string text = basis_text(reading.power_basis, reading.power_coverage); !text.empty())
    lines.push_back("  power: " + text);
  std::string missing;
  for (const MetricInfo& metric : kMetricTable)
    if (const Absence absence = reading.why_missing(metric.metric);
        absence != Absence::none && absence != Absence::not_asked)
      missing += fmt::format("{}{} ({})", missing.empty() ? "" : ", ", metric.name, lull::to_string(absence));
  if (!missing.empty()) lines.push_back("  unknown: " + missing);
  if (lines.size() == 1) lines.emplace_back("  everything that was asked for is known");
  return lines;
}

}  // namespace lull
