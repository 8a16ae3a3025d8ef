#include "view/replay_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/text.h"
#include "base/units.h"
#include "replay/answer.h"
#include "replay/hurt.h"
#include "replay/output.h"

namespace lull {
namespace {

constexpr std::size_t kShownHurt = 10;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kWide = 100;  // what a sweep takes with all of its columns

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
  const auto of_ended = [&](double part) { return percent_text(part, static_cast<double>(totals.ended)); };
  const auto chance = [&](std::chrono::hours within) {
    const auto ratio = totals.back.chance_within(within);
    return ratio ? fmt::format("{:.0f} %", 100 * *ratio) : std::string("-");
  };
  row("jobs", fmt::format("{}", totals.jobs), "", fmt::format("per {}", replay::per_text(result.per)), Tone::plain);
  row("ended", fmt::format("{}", totals.ended),
      percent_text(static_cast<double>(totals.ended), static_cast<double>(totals.jobs)), "of the jobs", Tone::strong);
  row("worked again", fmt::format("{}", totals.worked_again), of_ended(static_cast<double>(totals.worked_again)),
      "of those ended", totals.worked_again > 0 ? Tone::bad : Tone::plain);
  row("work lost", hours_text(totals.lost_seconds), percent_text(totals.lost_seconds, totals.work_seconds),
      "of the GPU-hours at 100 %", totals.lost_seconds > 0 ? Tone::bad : Tone::plain);
  row("saved for good", hours_text(totals.saved_seconds), percent_text(totals.saved_seconds, result.seen_seconds),
      price ? cost(totals.saved_seconds) : "GPU-hours, of those seen", Tone::good);
  row("in gaps", hours_text(result.gap_seconds), "", "GPU-hours not seen", Tone::plain);
  row("back within 1h", "", chance(std::chrono::hours(1)), "chance of a job that was ended", Tone::plain);
  row("back within 4h", "", chance(std::chrono::hours(4)), "", Tone::plain);
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

std::string subject_title(replay::Per per) {
  switch (per) {
    case replay::Per::gpu: return "GPU";
    case replay::Per::job: return "JOB";
    case replay::Per::host: return "HOST";
    case replay::Per::all: return "GPUs";
  }
  return "GPU";
}

// What became of a job after the end that it would have had.
Cell fate_of(const replay::End& end) {
  if (end.back) return {"worked again after " + span_text(*end.back - end.at), Tone::bad};
  return {end.how == replay::Leaving::released ? "job ended" : "never worked again", Tone::plain};
}

// The jobs that would have been ended, each with whose it was: those that worked again are the mistakes.
std::vector<std::string> end_lines(const ReplayResult& result, std::size_t most, const Screen& screen) {
  Column subject = column(subject_title(result.per), Align::left);
  Column when = column("ENDED AT", Align::left);
  Column user = column("USER", Align::left);
  Column command = column("COMMAND", Align::left);
  Column then = column("THEN", Align::left);
  Column lost = column("WORK LOST h", Align::right);
  command.give_up = 1;
  command.shrink_to = 8;
  lost.give_up = 2;
  const std::size_t shown = std::min(most, result.ends.size());
  bool any_user = false;
  bool any_command = false;
  for (std::size_t i = 0; i < shown; ++i) {
    const replay::End& end = result.ends[i];
    const bool told = end.holder > trace::kNobody;
    const std::string who = told ? result.trace.holders[end.holder].user_text() : "";
    const std::string what = told ? result.trace.holders[end.holder].command : "";
    any_user |= !who.empty();
    any_command |= !what.empty();
    subject.cells.push_back({for_screen(printable(replay::gpu_text(result, end.gpu)), screen)});
    when.cells.push_back({replay::moment_text(result, end.at)});
    user.cells.push_back({who.empty() ? "?" : for_screen(printable(who), screen)});
    command.cells.push_back({what.empty() ? "?" : for_screen(printable(what), screen)});
    then.cells.push_back(fate_of(end));
    lost.cells.push_back({fmt::format("{:.2f}", replay::hours(end.lost_seconds))});
  }
  std::vector<Column> columns = {subject, when};
  if (any_user) columns.push_back(user);
  if (any_command) columns.push_back(command);
  columns.insert(columns.end(), {then, lost});
  std::vector<std::string> lines = {"what it would have ended:"};
  std::ranges::move(layout(columns, {}, screen), std::back_inserter(lines));
  if (result.totals.ended > shown)
    lines.push_back(wrapped(fmt::format("and {} more (--all lists them, --json has them)", result.totals.ended - shown),
                            screen.width));
  return lines;
}

// Each stretch that lasted long enough, also while nobody had the GPU, and after the first one in a job.
std::vector<std::string> firing_lines(const ReplayResult& result, const Screen& screen) {
  Column subject = column(subject_title(result.per), Align::left);
  Column when = column("WHEN", Align::left);
  Column before = column("IDLE BEFORE", Align::right);
  Column after = column("STAYED IDLE", Align::right);
  Column then = column("THEN", Align::left);
  for (const Firing& firing : result.firings) {
    subject.cells.push_back({for_screen(printable(replay::gpu_text(result, firing.gpu)), screen)});
    when.cells.push_back({replay::moment_text(result, firing.at)});
    before.cells.push_back({span_text(firing.idle)});
    after.cells.push_back({span_text(firing.after)});
    then.cells.push_back({firing.regretted ? "came back: regretted" : std::string(replay::ending_text(firing.ending)),
                          firing.regretted ? Tone::bad : Tone::plain});
  }
  std::vector<std::string> lines = {wrapped("each time it would have fired, whoever had the GPU then:", screen.width)};
  std::ranges::move(layout({subject, when, before, after, then}, {}, screen), std::back_inserter(lines));
  return lines;
}

std::vector<std::string> hurt_lines(const ReplayResult& result, std::size_t most, const Screen& screen) {
  Column user = column("USER", Align::left);
  Column command = column("COMMAND", Align::left);
  Column host = column("HOST", Align::left);
  Column ended = column("ENDED", Align::right);
  Column again = column("WORKED AGAIN", Align::right);
  Column lost = column("WORK LOST h", Align::right);
  std::vector<replay::Hurt> hurt = replay::whom_it_hurt(result);
  std::erase_if(hurt, [](const replay::Hurt& one) { return one.worked_again == 0; });
  if (hurt.empty()) return {};
  const bool hosts = std::any_of(hurt.begin(), hurt.end(), [](const auto& one) { return !one.host.empty(); });
  const std::size_t shown = std::min(most, hurt.size());
  const auto text = [](const std::string& what) { return what.empty() ? std::string("?") : printable(what); };
  for (std::size_t i = 0; i < shown; ++i) {
    user.cells.push_back({text(hurt[i].user), Tone::plain});
    command.cells.push_back({text(hurt[i].command), Tone::plain});
    host.cells.push_back({text(hurt[i].host), Tone::plain});
    ended.cells.push_back({fmt::format("{}", hurt[i].ended), Tone::plain});
    again.cells.push_back({fmt::format("{}", hurt[i].worked_again), Tone::bad});
    lost.cells.push_back({fmt::format("{:.2f}", replay::hours(hurt[i].lost_seconds)), Tone::plain});
  }
  std::vector<Column> columns = {user, command};
  if (hosts) columns.push_back(host);
  columns.insert(columns.end(), {ended, again, lost});
  std::vector<std::string> lines = {"whom it would have hurt:"};
  for (std::string& line : layout(columns, {}, screen)) lines.push_back(std::move(line));
  if (hurt.size() > shown) lines.push_back(fmt::format("and {} more (--all)", hurt.size() - shown));
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
  const bool wide = screen.width == 0 || screen.width >= kWide;
  for (const char* title : {"ENDED", "WORKED AGAIN", "WORK LOST", "SAVED h"})
    columns.push_back(column(title, Align::right));
  if (price) columns.push_back(column("WORTH", Align::right));
  for (const char* title : {"BACK 1h", "BACK 4h"}) columns.push_back(column(title, Align::right));
  if (wide)
    for (const char* title : {"FIRINGS", "RECLAIMED h"}) columns.push_back(column(title, Align::right));
  columns.push_back(column("", Align::left));
  for (const SweepRow& row : result.sweep) {
    const Totals& totals = row.totals;
    const Tone tone = row.knee ? Tone::strong : Tone::plain;
    std::vector<std::string> cells = row.values;
    cells.push_back(fmt::format("{}", totals.ended));
    cells.push_back(fmt::format("{}", totals.worked_again));
    cells.push_back(percent_text(totals.lost_seconds, totals.work_seconds));
    cells.push_back(fmt::format("{:.2f}", replay::hours(totals.saved_seconds)));
    if (price) cells.push_back(money(totals.saved_seconds, price));
    for (const int within : {1, 4}) {
      const auto ratio = totals.back.chance_within(std::chrono::hours(within));
      cells.push_back(ratio ? fmt::format("{:.0f} %", 100 * *ratio) : "-");
    }
    if (wide) cells.push_back(fmt::format("{}", totals.firings));
    if (wide) cells.push_back(fmt::format("{:.2f}", replay::hours(totals.reclaimed_seconds)));
    cells.emplace_back(row.knee ? (screen.utf8 ? "◄ knee" : "< knee") : "");
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back({std::move(cells[i]), tone});
  }
  std::vector<std::string> lines = layout(columns, {}, screen);
  if (axes > 0 && result.has_for_axis())
    for (const std::string& line : replay::knee_words(result)) lines.push_back(wrapped(line, screen.width));
  return lines;
}

}  // namespace

std::string replay_table(const ReplayResult& result, std::optional<double> price, bool all, const Screen& screen) {
  const std::string said = replay::answer(result);
  std::string out = wrapped(said, screen.width) + "\n" + wrapped(replay::basis(result), screen.width) + "\n";
  out += wrapped(fmt::format("{}{}; {} samples, {} to {}", printable(result.rule),
                             result.arm.empty() ? "" : ", armed by " + printable(result.arm), result.samples,
                             replay::moment_text(result, result.first), replay::moment_text(result, result.last)),
                 screen.width) +
         "\n\n";
  if (!result.axes.empty()) {
    append(out, sweep_lines(result, price, screen));
    out += '\n';
  }
  append(out, totals_lines(result, price, screen));
  if (const auto lines = hurt_lines(result, all ? kNoLimit : kShownHurt, screen); !lines.empty()) {
    out += '\n';
    append(out, lines);
  }
  if (!result.ends.empty()) {
    out += '\n';
    append(out, end_lines(result, all ? kNoLimit : kShownEnds, screen));
  }
  if (result.firings.empty()) return out;
  out += '\n';
  if (all)
    append(out, firing_lines(result, screen));
  else
    out += wrapped(fmt::format("{} firing{} in all (--all lists them, --csv and --json have them)",
                               result.totals.firings, result.totals.firings == 1 ? "" : "s"),
                   screen.width) +
           "\n";
  return out;
}

}  // namespace lull
