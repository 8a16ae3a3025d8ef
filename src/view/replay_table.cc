#include "view/replay_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "replay/answer.h"
#include "replay/recommend.h"

namespace lull {
namespace {

constexpr std::size_t kShownHurt = 10;
constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kAllColumnsWidth = 112;  // what a sweep takes with all of its columns

constexpr std::size_t kEnoughName = 24;
constexpr std::size_t kLeastName = 8;
constexpr std::size_t kFullWordsWidth = 80;  // what becomes of a job is said in full

using replay::Firing;
using replay::ReplayResult;
using replay::SweepRow;
using replay::Totals;

std::string percent_text(double part, double whole) {
  const auto share = replay::percent(part, whole);
  return share ? fmt::format("{:.1f} %", *share) : "-";
}

// Short enough for a table; a stretch of days needs no milliseconds, one of hours no seconds.
std::string span_text(Duration duration) {
  if (duration >= std::chrono::hours(1))
    duration = std::chrono::round<std::chrono::minutes>(duration);
  else if (duration >= std::chrono::minutes(1))
    duration = std::chrono::round<std::chrono::seconds>(duration);
  return format_duration(duration);
}

// A moment in a table or a sentence: without milliseconds.
std::string short_moment(const ReplayResult& result, Instant at) {
  std::string text = replay::moment_text(result.trace, at);
  const std::size_t point = text.find('.');
  if (result.trace.from_epoch && point != std::string::npos) text.erase(point, 4);
  return text;
}

std::string money(double seconds, std::optional<double> price) {
  return price ? fmt::format("{:.2f}", replay::hours(seconds) * *price) : "";
}

void append(std::string& out, const std::vector<std::string>& lines) {
  for (const std::string& line : lines) out += line + "\n";
}

Column column(std::string title, Align align, int give_up = 0) {
  Column made;
  made.title = std::move(title);
  made.align = align;
  made.give_up = give_up;
  return made;
}

std::string chance_text(const Totals& totals, int hours) {
  const auto chance = totals.back.chance_within(std::chrono::hours(hours));
  if (!chance) return "-";
  return fmt::format("{:.0f} % ({:.0f}–{:.0f} %)", 100 * chance->ratio, std::floor(100 * chance->low),
                     std::ceil(100 * chance->high));
}

std::vector<std::string> totals_lines(const ReplayResult& result, const Totals& totals,
                                      const replay::OutputOptions& how, const Screen& screen) {
  Column names = column("", Align::left);
  Column values = column("", Align::right);
  Column shares = column("", Align::right);
  Column notes = column("", Align::left);
  notes.give_up = 1;
  const auto row = [&](std::string name, std::string value, std::string share, std::string note, Tone tone) {
    names.cells.push_back({std::move(name), Tone::plain});
    values.cells.push_back({std::move(value), tone});
    shares.cells.push_back({std::move(share), Tone::plain});
    notes.cells.push_back({std::move(note), Tone::dim});
  };
  const auto cost = [&](double seconds) { return how.price ? "worth " + money(seconds, how.price) : std::string(); };
  const auto hours_text = [](double seconds) { return fmt::format("{:.2f}", replay::hours(seconds)); };
  const auto count = [](std::uint64_t number) { return fmt::format("{}", number); };
  const auto of_ended = [&](std::uint64_t part) {
    return percent_text(static_cast<double>(part), static_cast<double>(totals.ended));
  };
  row("jobs", count(totals.jobs), "", fmt::format("per {}", replay::per_text(result.per)), Tone::plain);
  row("ended", count(totals.ended), percent_text(static_cast<double>(totals.ended), static_cast<double>(totals.jobs)),
      "of the jobs", Tone::strong);
  row("worked again", count(totals.worked_again), of_ended(totals.worked_again), "of those ended",
      totals.worked_again > 0 ? Tone::bad : Tone::plain);
  const auto followed = totals.follow_up_median();
  row("not seen again", count(totals.not_seen_again()), of_ended(totals.not_seen_again()),
      followed ? "median follow-up " + replay::follow_up_text(*followed) : "", Tone::plain);
  row("work lost", hours_text(totals.lost_seconds), replay::lost_text(totals), "GPU-hours at 100 %",
      totals.lost_seconds > 0 ? Tone::bad : Tone::plain);
  row("freed", hours_text(totals.freed_seconds()), percent_text(totals.freed_seconds(), result.seen_seconds),
      how.price ? cost(totals.freed_seconds()) : "GPU-hours, of those seen", Tone::good);
  row("  until it worked again", hours_text(totals.freed_until_return), "", "", Tone::plain);
  row("  until it was released", hours_text(totals.freed_until_release), "", "", Tone::plain);
  row("  until recording ended", hours_text(totals.freed_until_recording_end), "", "", Tone::plain);
  for (const int within : {1, 4, 24}) {
    const auto all = totals.back.estimate(std::chrono::hours(within));
    row(fmt::format("back within {}h", within), "", chance_text(totals, within),
        fmt::format("chance; {} at risk", replay::count_of(all ? all->at_risk : 0, "job")), Tone::plain);
  }
  row("in gaps", hours_text(result.gap_seconds), "", "GPU-hours not seen", Tone::plain);
  row("GPU-hours seen", hours_text(result.seen_seconds), "", cost(result.seen_seconds), Tone::plain);
  if (how.verbose) {
    const auto firings = static_cast<double>(totals.firings);
    row("idle", hours_text(totals.idle_seconds), percent_text(totals.idle_seconds, result.seen_seconds),
        "GPU-hours in stretches, held or not", Tone::plain);
    row("reclaimed", hours_text(totals.reclaimed_seconds), percent_text(totals.reclaimed_seconds, result.seen_seconds),
        "from each firing to the end of its stretch", Tone::plain);
    row("firings", count(totals.firings), "", "also of GPUs that nobody held", Tone::plain);
    row("came back", count(totals.came_back), percent_text(static_cast<double>(totals.came_back), firings), "",
        Tone::plain);
    row("regretted", count(totals.regretted), percent_text(static_cast<double>(totals.regretted), firings),
        "came back within " + format_duration(result.regret), Tone::plain);
  }
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
Cell fate_of(const replay::End& end, bool narrow) {
  if (end.back) return {(narrow ? "back after " : "worked again after ") + span_text(*end.back - end.at), Tone::bad};
  return {(end.how == replay::Leaving::released ? "released after "
           : narrow                             ? "not seen for "
                                                : "not seen again, followed for ") +
              span_text(end.followed),
          Tone::plain};
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
    when.cells.push_back({short_moment(result, end.at)});
    user.cells.push_back({who.empty() ? "?" : for_screen(printable(who), screen)});
    command.cells.push_back({what.empty() ? "?" : for_screen(printable(what), screen)});
    then.cells.push_back(fate_of(end, screen.width > 0 && screen.width < kFullWordsWidth));
    lost.cells.push_back({fmt::format("{:.2f}", replay::hours(end.lost_seconds))});
  }
  std::vector<Column> columns = {subject, when};
  if (any_user) columns.push_back(user);
  if (any_command) columns.push_back(command);
  columns.insert(columns.end(), {then, lost});
  std::vector<std::string> lines = {"what it would have ended:"};
  std::ranges::move(layout(columns, {}, screen), std::back_inserter(lines));
  if (result.main_totals().ended > shown)
    lines.push_back(
        wrapped(fmt::format("and {} more (--all lists them, --json has them)", result.main_totals().ended - shown),
                screen.width));
  return lines;
}

// Each stretch that lasted long enough, also while no job had the GPU, and after the first one in a job.
std::vector<std::string> firing_lines(const ReplayResult& result, const Screen& screen) {
  Column subject = column(subject_title(result.per), Align::left);
  Column when = column("WHEN", Align::left);
  Column before = column("IDLE BEFORE", Align::right);
  Column after = column("STAYED IDLE", Align::right);
  Column then = column("THEN", Align::left);
  for (const Firing& firing : result.firings) {
    subject.cells.push_back({for_screen(printable(replay::gpu_text(result, firing.gpu)), screen)});
    when.cells.push_back({short_moment(result, firing.at)});
    before.cells.push_back({span_text(firing.idle)});
    after.cells.push_back({span_text(firing.after)});
    then.cells.push_back({firing.regretted ? "came back: regretted" : std::string(replay::ending_text(firing.ending)),
                          firing.regretted ? Tone::bad : Tone::plain});
  }
  std::vector<std::string> lines = {wrapped("each time it would have fired, whichever job had the GPU:", screen.width)};
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
  command.enough = kEnoughName;
  command.shrink_to = kLeastName;
  host.give_up = 2;
  lost.give_up = 1;
  std::vector<replay::Hurt> hurt = replay::hurt_owners(result);
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
  std::vector<std::string> lines = {"whose work it would have lost:"};
  for (std::string& line : layout(columns, {}, screen)) lines.push_back(std::move(line));
  if (hurt.size() > shown) lines.push_back(fmt::format("and {} more (--all)", hurt.size() - shown));
  return lines;
}

std::vector<std::string> sweep_lines(const ReplayResult& result, const replay::OutputOptions& how,
                                     const Screen& screen) {
  std::vector<Column> columns;
  for (const replay::Axis& axis : result.axes) {
    std::string title = axis.name;
    std::transform(title.begin(), title.end(), title.begin(), [](unsigned char c) { return std::toupper(c); });
    columns.push_back(column(std::move(title), Align::right));
  }
  const bool wide = screen.width == 0 || screen.width >= kAllColumnsWidth;
  for (const char* title : {"ENDED", "WORKED AGAIN", "WORK LOST", "FREED h"})
    columns.push_back(column(title, Align::right));
  if (how.price) columns.push_back(column("WORTH", Align::right));
  if (wide)
    for (const char* title : {"FOLLOWED", "BACK IN 4h"}) columns.push_back(column(title, Align::right));
  if (how.verbose)
    for (const char* title : {"FIRINGS", "RECLAIMED h"}) columns.push_back(column(title, Align::right));
  columns.push_back(column("", Align::left));
  for (const SweepRow& row : result.sweep) {
    const Totals& totals = row.totals;
    const Tone tone = row.recommended || row.closest ? Tone::strong : Tone::plain;
    std::vector<std::string> cells = row.values;
    cells.push_back(fmt::format("{}", totals.ended));
    cells.push_back(fmt::format("{}", totals.worked_again));
    cells.push_back(replay::lost_text(totals));
    cells.push_back(fmt::format("{:.2f}", replay::hours(totals.freed_seconds())));
    if (how.price) cells.push_back(money(totals.freed_seconds(), how.price));
    const auto followed = totals.follow_up_median();
    if (wide) cells.push_back(followed ? replay::follow_up_text(*followed) : "-");
    if (wide) cells.push_back(chance_text(totals, 4));
    if (how.verbose) cells.push_back(fmt::format("{}", totals.firings));
    if (how.verbose) cells.push_back(fmt::format("{:.2f}", replay::hours(totals.reclaimed_seconds)));
    const char* mark = row.recommended ? "recommended" : row.closest ? "closest" : "";
    cells.push_back(*mark == '\0' ? "" : fmt::format("{} {}", screen.utf8 ? "◄" : "<", mark));
    for (std::size_t i = 0; i < cells.size(); ++i) columns[i].cells.push_back({std::move(cells[i]), tone});
  }
  return layout(columns, {}, screen);
}

// The values of a sweep: the rule as given is one of many then.
std::string tried_text(const ReplayResult& result) {
  std::string text;
  for (const replay::Axis& axis : result.axes)
    text += fmt::format("{}{}={}", text.empty() ? ", and with " : " ", printable(axis.name),
                        printable(fmt::format("{}", fmt::join(axis.values, ","))));
  return text;
}

}  // namespace

std::string replay_table(const ReplayResult& result, const replay::OutputOptions& how, bool all, const Screen& screen) {
  std::string out = wrapped(for_screen(replay::answer(result), screen), screen.width) + "\n" +
                    wrapped(replay::basis(result), screen.width) + "\n";
  out += wrapped(fmt::format("{}{}{}; {} samples, {} to {}", printable(result.rule), tried_text(result),
                             result.arm.empty() ? "" : ", armed by " + printable(result.arm), result.samples,
                             short_moment(result, result.first), short_moment(result, result.last)),
                 screen.width) +
         "\n\n";
  if (!result.axes.empty()) {
    append(out, sweep_lines(result, how, screen));
    out += '\n';
  }
  if (!result.axes.empty()) {
    const replay::SweepRow* row = result.main_row();
    out += wrapped(printable(row != nullptr ? row->rule : result.rule) + ":", screen.width) + "\n";
  }
  append(out, totals_lines(result, result.main_totals(), how, screen));
  if (const auto lines = hurt_lines(result, all ? kNoLimit : kShownHurt, screen); !lines.empty()) {
    out += '\n';
    append(out, lines);
  }
  if (!result.ends.empty()) {
    out += '\n';
    append(out, end_lines(result, all ? kNoLimit : kShownEnds, screen));
  }
  if (!how.verbose || result.firings.empty()) return out;
  out += '\n';
  append(out, firing_lines(result, screen));
  return out;
}

namespace {

using replay::ReportBy;

// A column of the report: its title, what it shows, and when it goes for want of room.
struct ReportColumn {
  std::string title;
  std::function<Cell(const replay::Use&)> cell;
  int give_up = 0;
};

std::vector<std::string> report_block(const replay::ReportResult& result, ReportBy by,
                                      const std::vector<ReportColumn>& shown, const Screen& screen) {
  const bool all = by == ReportBy::all;
  std::vector<Column> columns;
  for (const auto& [of, title] :
       {std::pair(ReportBy::user, "USER"), std::pair(ReportBy::command, "COMMAND"), std::pair(ReportBy::host, "HOST")})
    if (all || by == of) columns.push_back(column(title, Align::left));
  for (Column& name : columns) {
    name.enough = kEnoughName;
    name.shrink_to = kLeastName;
  }
  const std::size_t names = columns.size();
  for (const ReportColumn& one : shown) columns.push_back(column(one.title, Align::right, one.give_up));
  const auto row = [&](const std::vector<std::string>& whose, const replay::Use& use, Tone tone) {
    for (std::size_t i = 0; i < names; ++i) columns[i].cells.push_back({printable(whose[i]), tone});
    for (std::size_t i = 0; i < shown.size(); ++i) {
      Cell cell = shown[i].cell(use);
      if (cell.tone == Tone::plain) cell.tone = tone;
      columns[names + i].cells.push_back(std::move(cell));
    }
  };
  for (const replay::UseOf& of : add_up(result, by)) {
    if (all)
      row({owner_text(of, ReportBy::user), of.nobody ? "" : owner_text(of, ReportBy::command),
           of.host.empty() ? "not told" : of.host},
          of.use, Tone::plain);
    else
      row({owner_text(of, by)}, of.use, Tone::plain);
  }
  row({"total", "", ""}, result.total, Tone::strong);
  return layout(columns, {}, screen);
}

}  // namespace

std::string report_table(const replay::ReportResult& result, ReportBy by, std::optional<double> price,
                         const Screen& screen) {
  const auto part = [](double replay::Use::* seconds, Tone tone = Tone::plain) {
    return [=](const replay::Use& use) {
      return Cell{replay::hours_text(use.*seconds), use.*seconds > 0 ? tone : Tone::plain};
    };
  };
  const auto cost = [&](double seconds) { return Cell{fmt::format("{:.2f}", replay::hours(seconds) * *price)}; };
  std::vector<ReportColumn> columns = {
      {"GPU-HOURS", [](const replay::Use& use) { return Cell{replay::hours_text(use.seconds())}; }},
      {"BUSY", part(&replay::Use::busy)},
      {"HELD IDLE", part(&replay::Use::idle, Tone::warn)}};
  std::vector<ReportColumn> stretches;
  for (std::size_t i = 0; i < replay::kStretches.size(); ++i)
    stretches.push_back({fmt::format(">{}", replay::kStretches[i].name),
                         [i](const replay::Use& use) { return Cell{replay::hours_text(use.idle_over[i])}; }});
  std::vector<ReportColumn> rest = {
      {"HUNG",
       [&](const replay::Use& use) {
         return result.judges_hangs ? part(&replay::Use::hung, Tone::bad)(use) : Cell{"-"};
       }},
      {"NOT JUDGED", part(&replay::Use::not_judged)},
      {"FREE", part(&replay::Use::free), 1},
      {"NOT KNOWN", part(&replay::Use::unknown), 3},
      {"kWh",
       [](const replay::Use& use) { return Cell{use.powered > 0 ? replay::figure_text(use.joules / 3.6e6) : "-"}; },
       2}};
  std::erase_if(rest, [&](const ReportColumn& column) {  // what there was nothing of
    return (column.title == "NOT JUDGED" && result.total.not_judged <= 0) ||
           (column.title == "NOT KNOWN" && result.total.unknown <= 0);
  });
  if (price) {
    rest.push_back({"IDLE COST", [&](const replay::Use& use) { return cost(use.idle + use.hung); }});
    rest.push_back({"PAST 1h", [&](const replay::Use& use) { return cost(use.recoverable()); }});
  }
  std::string out =
      wrapped(report_answer(result, price), screen.width) + "\n" + wrapped(report_basis(result), screen.width) + "\n\n";
  std::vector<ReportColumn> together = columns;
  together.insert(together.end(), stretches.begin(), stretches.end());
  together.insert(together.end(), rest.begin(), rest.end());
  Screen wide = screen;
  wide.width = kNoLimit;
  wide.colour = false;
  const std::vector<std::string> whole = report_block(result, by, together, wide);
  const bool fits = screen.width == 0 || std::ranges::all_of(whole, [&](const std::string& line) {
                      return display_width(line) <= screen.width;
                    });
  if (fits) {
    append(out, report_block(result, by, together, screen));
    return out;
  }
  // The stretches are what keeps people from taking all that was held idle for recoverable: they move, they do not go.
  columns.insert(columns.end(), rest.begin(), rest.end());
  append(out, report_block(result, by, columns, screen));
  stretches.insert(stretches.begin(), {"HELD IDLE", part(&replay::Use::idle, Tone::warn)});
  out += "\n" + wrapped("held idle, in stretches longer than:", screen.width) + "\n";
  append(out, report_block(result, by, stretches, screen));
  return out;
}

}  // namespace lull
