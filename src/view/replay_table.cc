#include "view/replay_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "replay/output.h"

namespace lull {
namespace {

using replay::Firing;
using replay::ReplayResult;
using replay::SweepRow;
using replay::Totals;

std::string percent_text(double part, double whole) {
  const auto share = replay::percent(part, whole);
  return share ? fmt::format("{:.1f} %", *share) : "-";
}

// Short enough for a table; a stretch of days needs no milliseconds.
std::string span_text(Duration duration) {
  if (duration >= std::chrono::minutes(1)) duration = std::chrono::round<std::chrono::seconds>(duration);
  return format_duration(duration);
}

std::string money(double seconds, std::optional<double> price) {
  return price ? fmt::format("{:.2f}", replay::hours(seconds) * *price) : "";
}

void append(std::string& out, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) out += line + "\n";
}

Column column(std::string title, Align align) {
  Column made;
  made.title = std::move(title);
  made.align = align;
  return made;
}

std::vector<std::string> totals_lines(const ReplayResult& result, std::optional<double> price, const Screen& screen) {
  const Totals& totals = result.totals;
  const auto count = static_cast<double>(totals.firings);
  Column names = column("", Align::left);
  Column values = column("", Align::right);
  Column shares = column("", Align::right);
  Column notes = column("", Align::left);
  const auto row = [&](std::string name, std::string value, std::string share, std::string note, Tone tone) {
    names.cells.push_back({std::move(name), Tone::plain});
    values.cells.push_back({std::move(value), tone});
    shares.cells.push_back({std::move(share), Tone::plain});
    notes.cells.push_back({std::move(note), Tone::dim});
  };
  const auto cost = [&](double seconds) { return price ? "worth " + money(seconds, price) : std::string(); };
  const auto hours_text = [](double seconds) { return fmt::format("{:.2f}", replay::hours(seconds)); };
  row("GPU-hours seen", hours_text(result.seen_seconds), "", cost(result.seen_seconds), Tone::plain);
  row("idle", hours_text(totals.idle_seconds), percent_text(totals.idle_seconds, result.seen_seconds),
      cost(totals.idle_seconds), Tone::plain);
  row("reclaimed", hours_text(totals.reclaimed_seconds), percent_text(totals.reclaimed_seconds, result.seen_seconds),
      cost(totals.reclaimed_seconds), Tone::good);
  row("firings", fmt::format("{}", totals.firings), "", "", Tone::strong);
  row("came back", fmt::format("{}", totals.came_back), percent_text(static_cast<double>(totals.came_back), count), "",
      Tone::plain);
  row("regretted", fmt::format("{}", totals.regretted), percent_text(static_cast<double>(totals.regretted), count),
      "came back within " + format_duration(result.regret), totals.regretted > 0 ? Tone::bad : Tone::plain);
  std::vector<std::string> lines = layout({names, values, shares, notes}, {}, screen);
  lines.erase(lines.begin());  // no titles
  return lines;
}

std::vector<std::string> firing_lines(const ReplayResult& result, std::size_t most, const Screen& screen) {
  Column gpu = column("GPU", Align::left);
  Column when = column("WHEN", Align::left);
  Column before = column("IDLE BEFORE", Align::right);
  Column after = column("STAYED IDLE", Align::right);
  Column then = column("THEN", Align::left);
  const std::size_t shown = std::min(most, result.firings.size());
  for (std::size_t i = 0; i < shown; ++i) {
    const Firing& firing = result.firings[i];
    gpu.cells.push_back({printable(replay::gpu_text(result, firing.gpu)), Tone::plain});
    when.cells.push_back({replay::moment_text(result, firing.at), Tone::plain});
    before.cells.push_back({span_text(firing.idle), Tone::plain});
    after.cells.push_back({span_text(firing.after), Tone::plain});
    then.cells.push_back({firing.regretted ? "came back: regretted" : std::string(replay::ending_text(firing.ending)),
                          firing.regretted ? Tone::bad : Tone::plain});
  }
  std::vector<std::string> lines = layout({gpu, when, before, after, then}, {}, screen);
  if (result.totals.firings > shown)
    lines.push_back(wrapped(
        fmt::format("and {} more (--all lists them, --csv and --json have them)", result.totals.firings - shown),
        screen.width));
  return lines;
}

// Why no knee, or which: for each setting of what else is swept.
std::vector<std::string> knee_lines(const ReplayResult& result) {
  std::vector<std::string> lines;
  for (const SweepRow& row : result.sweep) {
    if (!row.knee) continue;
    std::string what;
    for (std::size_t a = 0; a < row.values.size(); ++a)
      what += fmt::format("{}{}={}", a == 0 ? "" : ", ", result.axes[a].name, row.values[a]);
    lines.push_back(fmt::format(
        "knee: {}: the longest that still reclaims 80 % of what the shortest does at under a tenth of its regrets",
        what));
  }
  if (lines.empty())
    lines.emplace_back("no knee: none reclaims 80 % of what the shortest does at under a tenth of its regrets");
  return lines;
}

std::vector<std::string> sweep_lines(const ReplayResult& result, std::optional<double> price, const Screen& screen) {
  std::vector<Column> columns;
  for (const replay::Axis& axis : result.axes) {
    std::string title = axis.name;
    std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
    columns.push_back(column(std::move(title), Align::right));
  }
  const std::size_t axes = columns.size();
  for (const char* title : {"FIRINGS", "CAME BACK", "REGRETTED", "IDLE h", "RECLAIMED h", "OF SEEN"})
    columns.push_back(column(title, Align::right));
  if (price) columns.push_back(column("WORTH", Align::right));
  columns.push_back(column("", Align::left));
  for (const SweepRow& row : result.sweep) {
    const Totals& totals = row.totals;
    const Tone tone = row.knee ? Tone::strong : Tone::plain;
    std::vector<std::string> cells = row.values;
    cells.push_back(fmt::format("{}", totals.firings));
    cells.push_back(fmt::format("{}", totals.came_back));
    cells.push_back(fmt::format("{}", totals.regretted));
    cells.push_back(fmt::format("{:.2f}", replay::hours(totals.idle_seconds)));
    cells.push_back(fmt::format("{:.2f}", replay::hours(totals.reclaimed_seconds)));
    cells.push_back(percent_text(totals.reclaimed_seconds, result.seen_seconds));
    if (price) cells.push_back(money(totals.reclaimed_seconds, price));
    cells.emplace_back(row.knee ? (screen.utf8 ? "◄ knee" : "< knee") : "");
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back({std::move(cells[i]), tone});
  }
  std::vector<std::string> lines = layout(columns, {}, screen);
  if (axes > 0 && result.has_for_axis())
    for (const std::string& line : knee_lines(result)) lines.push_back(wrapped(line, screen.width));
  return lines;
}

}  // namespace

std::string replay_table(const ReplayResult& result, std::optional<double> price, std::size_t most_firings,
                         const Screen& screen) {
  const std::string rule = printable(result.rule);
  std::string out =
      wrapped(fmt::format("{}{}, {}", rule, result.arm.empty() ? "" : ", armed by " + printable(result.arm),
                          result.together ? "all GPUs together" : "each GPU by itself"),
              screen.width);
  if (out.starts_with(rule)) out.replace(0, rule.size(), paint(rule, Tone::strong, screen));
  out += "\n" +
         wrapped(fmt::format("{} GPU{}, {} samples, {} to {}", result.gpus.size(), result.gpus.size() == 1 ? "" : "s",
                             result.samples, replay::moment_text(result, result.first),
                             replay::moment_text(result, result.last)),
                 screen.width) +
         "\n\n";
  append(out, totals_lines(result, price, screen));
  if (!result.firings.empty()) {
    out += '\n';
    append(out, firing_lines(result, most_firings, screen));
  }
  if (!result.axes.empty()) {
    out += '\n';
    append(out, sweep_lines(result, price, screen));
  }
  return out;
}

}  // namespace lull
