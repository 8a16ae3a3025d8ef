#include "view/jobs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "view/progress.h"

namespace lull {
namespace {

constexpr const char* kNothing = "-";

enum JobOrder : std::size_t { job_as_it_comes, job_by_idle, job_by_util, job_by_gpus };
constexpr std::array<std::string_view, 4> kJobOrders = {"job", "idle for", "util", "GPUs"};

constexpr std::size_t kJobIdleColumn = 5;

// When, who and which stay longest: that is what people look for.
std::vector<Column> job_columns() {
  return {{"JOB", Align::left, 0, 10, {}, 18},       {"USER", Align::left, 0, 6, {}, 10},
          {"NODES", Align::left, 5, 5, {}, 9},       {"GPUS", Align::left, 0, 4, {}, 8},
          {"UTIL", Align::right, 3, 0, {}},          {"IDLE FOR", Align::right, 0, 0, {}},
          {"NEXT STEP", Align::left, 1, 12, {}, 16}, {"KEPT UNTIL", Align::left, 2, 0, {}},
          {"COMMAND", Align::left, 6, 8, {}, 10}};
}

std::string joined(const std::vector<std::string>& words) {
  return words.empty() ? kNothing : printable(fmt::format("{}", fmt::join(words, ",")));
}

// "0-3,5"
std::string gpus_of(const JobRow& row) {
  std::string text;
  for (std::size_t i = 0; i < row.gpus.size();) {
    const auto first = to_unsigned(row.gpus[i].label);
    std::size_t last = i;
    while (first && last + 1 < row.gpus.size() && to_unsigned(row.gpus[last + 1].label) == *first + (last + 1 - i))
      ++last;
    text += (text.empty() ? "" : ",") + printable(row.gpus[i].label);
    if (last > i) text += (last == i + 1 ? "," : "-") + printable(row.gpus[last].label);
    i = last + 1;
  }
  return text.empty() ? kNothing : text;
}

std::string idle_of(const JobRow& row) {
  if (!row.idle_for) return kNothing;
  if (*row.idle_for == Duration::zero() && row.next.empty()) return "busy";  // else it has just begun to be idle
  return format_duration(std::chrono::floor<std::chrono::seconds>(*row.idle_for));
}

std::string next_of(const JobRow& row) {
  if (row.next.empty()) return kNothing;
  const std::string text = (row.dry_run ? "would " : "") + printable(row.next);
  if (!row.next_in) return text;
  return *row.next_in == Duration::zero() ? text + " now" : text + " in " + countdown_text(*row.next_in);
}

std::string kept_of(const JobRow& row, WallTime now) {
  if (!row.kept_until) return kNothing;
  const bool today = format_local(now, "%F") == format_local(*row.kept_until, "%F");
  return format_local(*row.kept_until, today ? "%H:%M" : "%m-%d %H:%M");
}

std::string name_of(const JobRow& row) { return row.job.empty() ? "?" : printable(row.job); }

}  // namespace

double util_of(const JobRow& row) {
  double sum = row.gpus.empty() ? kUnknown : 0;
  for (const JobGpu& gpu : row.gpus) sum += gpu.util;
  return sum / static_cast<double>(row.gpus.size());
}

std::vector<std::string> jobs_table(const JobsView& view, const Screen& screen) {
  return JobRows(view).whole_table(screen);
}

std::string jobs_summary(const JobsView& view) {
  if (view.rows.empty()) return "no job has a GPU";
  const auto idle = std::ranges::count_if(
      view.rows, [](const JobRow& row) { return row.idle_for && *row.idle_for > Duration::zero(); });
  return fmt::format("{} job{} GPUs{}", view.rows.size(), view.rows.size() == 1 ? " has" : "s have",
                     idle == 0 ? "" : fmt::format(", {} idle", idle));
}

std::span<const std::string_view> JobRows::orders() const { return kJobOrders; }

double JobRows::weight(std::size_t row, std::size_t order) const {
  const JobRow& one = view_.rows[row];
  if (order == job_by_gpus) return static_cast<double>(one.gpus.size());
  if (order == job_by_util) return util_of(one);
  return one.idle_for ? to_seconds(*one.idle_for) : kUnknown;
}

std::string JobRows::search_text(std::size_t row) const {
  const JobRow& one = view_.rows[row];
  return lowered(fmt::format("{} {} {} gpu{} {}", one.job, joined(one.users), one.nodes, gpus_of(one), one.command));
}

std::vector<std::string> JobRows::table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                        const Screen& screen) const {
  std::vector<Column> columns = job_columns();
  for (std::size_t place = 0; place < rows.size(); ++place) {
    const JobRow& row = view_.rows[rows[place]];
    const double percent = util_of(row);
    const bool is_idle = row.idle_for.value_or(Duration::zero()) > Duration::zero();
    const std::vector<std::string> cells = {(marked == place ? ">" : "") + name_of(row),
                                            joined(row.users),
                                            row.nodes.empty() ? kNothing : printable(row.nodes),
                                            gpus_of(row),
                                            std::isnan(percent) ? kNothing : fmt::format("{:.0f} %", percent),
                                            idle_of(row),
                                            next_of(row),
                                            kept_of(row, view_.now),
                                            row.command.empty() ? kNothing : printable(row.command)};
    for (std::size_t i = 0; i < cells.size(); ++i)
      columns[i].cells.push_back({for_screen(cells[i], screen), i == 0                           ? Tone::strong
                                                                : i == kJobIdleColumn && is_idle ? Tone::warn
                                                                                                 : Tone::plain});
  }
  return layout(columns, {}, screen);
}

std::vector<std::string> JobRows::why(std::size_t row) const {
  const JobRow& one = view_.rows[row];
  std::vector<std::string> lines = {
      fmt::format("{} of {} on {}", name_of(one), joined(one.users), printable(one.nodes))};
  for (const JobGpu& gpu : one.gpus)
    lines.push_back(fmt::format("  GPU {}  {}  util {}", printable(gpu.label), printable(gpu.uuid),
                                std::isnan(gpu.util) ? "is unknown" : fmt::format("{:.0f} %", gpu.util)));
  lines.push_back(one.processes == 0 ? "  no process of it is on a GPU"
                                     : fmt::format("  {} process{} on them, one is {}", one.processes,
                                                   one.processes == 1 ? "" : "es", printable(one.command)));
  lines.push_back(one.watched ? fmt::format("  idle for {}, next step {}, kept until {}", idle_of(one), next_of(one),
                                            kept_of(one, view_.now))
                              : "  no `lull watch --per` that you can ask judges it");
  return lines;
}

void put_jobs(JsonWriter& json, const JobsView& view) {
  const auto text = [&](std::string_view name, const std::string& what) {
    json.key(name).value_or_null(printable(what));
  };
  const auto seconds = [&](std::string_view name, const std::optional<Duration>& time) {
    json.member(name, time ? std::optional(to_seconds(*time)) : std::nullopt);
  };
  json.begin_array();
  for (const JobRow& row : view.rows) {
    json.begin_object();
    text("job", row.job);
    json.key("users").begin_array();
    for (const std::string& name : row.users) json.value(printable(name));
    json.end_array();
    text("nodes", row.nodes);
    json.key("gpus").begin_array();
    for (const JobGpu& gpu : row.gpus) {
      json.begin_object().member("gpu", printable(gpu.label));
      text("uuid", gpu.uuid);
      json.member("util_percent", gpu.util).end_object();
    }
    json.end_array().member("util_percent", util_of(row)).member("processes", row.processes);
    json.key("pids").begin_array();
    for (const pid_t pid : row.pids) json.value(pid);
    json.end_array();
    text("command", row.command);
    json.member("watched", row.watched);
    seconds("idle_seconds", row.idle_for);
    text("next_action", row.next);
    seconds("next_in_seconds", row.next_in);
    json.member("dry_run", row.watched ? std::optional(row.dry_run) : std::nullopt);
    json.member("kept_until", row.kept_until ? std::optional(format_rfc3339(*row.kept_until)) : std::nullopt);
    json.end_object();
  }
  json.end_array();
}

std::string jobs_json(const JobsView& view, const std::string& host) {
  JsonWriter json;
  json.begin_object().member("time", format_rfc3339(view.now)).member("host", printable(host)).key("jobs");
  put_jobs(json, view);
  return json.end_object().take();
}

}  // namespace lull
