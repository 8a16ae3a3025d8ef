#include "replay/report_output.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"
#include "replay/answer.h"
#include "replay/output.h"
#include "replay/page.h"
#include "trace/time.h"

namespace lull::replay {
namespace {

constexpr double kJoulesPerKilowattHour = 3.6e6;

std::optional<double> kilowatt_hours(const Use& use) {
  return use.powered > 0 ? std::optional(use.joules / kJoulesPerKilowattHour) : std::nullopt;
}

Fields use_fields(const ReportResult& result, const Use& use, std::optional<double> price) {
  Fields fields = {
      {"gpu_hours", hours(use.seconds())}, {"busy_hours", hours(use.busy)}, {"idle_hours", hours(use.idle)}};
  for (std::size_t i = 0; i < kStretches.size(); ++i) {
    fields.emplace_back(fmt::format("idle_over_{}_hours", kStretches[i].name), hours(use.idle_over[i]));
    fields.emplace_back(fmt::format("idle_after_{}_hours", kStretches[i].name), hours(use.idle_after[i]));
  }
  // Nothing where no sample could have said so.
  fields.emplace_back("hung_hours", result.judges_hangs ? std::optional(hours(use.hung)) : std::nullopt);
  fields.emplace_back("not_judged_hours", hours(use.not_judged));
  fields.emplace_back("free_hours", hours(use.free));
  fields.emplace_back("unknown_hours", hours(use.unknown));
  fields.emplace_back("energy_kwh", kilowatt_hours(use));
  if (!price) return fields;
  fields.emplace_back("cost", hours(use.seconds()) * *price);
  fields.emplace_back("idle_cost", hours(use.idle + use.hung) * *price);
  fields.emplace_back("recoverable_cost", hours(use.recoverable()) * *price);
  return fields;
}

void put_name(JsonWriter& json, const UseOf& of, ReportBy by) {
  if (by == ReportBy::user || by == ReportBy::all) json.member_or_null("user", printable(of.user));
  if (by == ReportBy::command || by == ReportBy::all) json.member_or_null("command", printable(of.command));
  if (by == ReportBy::host || by == ReportBy::all) json.member_or_null("host", printable(of.host));
  json.member("nobody", of.nobody);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else
      out += c;
  }
  return out;
}

std::string bar(const Use& use) {
  std::string out = "<div class=\"use\">";
  const std::array<std::pair<const char*, double>, 6> parts = {{{"busy", use.busy},
                                                                {"idle", use.idle},
                                                                {"hung", use.hung},
                                                                {"unjudged", use.not_judged},
                                                                {"free", use.free},
                                                                {"none", use.unknown}}};
  for (const auto& [name, seconds] : parts)
    if (seconds > 0) out += fmt::format("<i class=\"{}\" style=\"flex:{:.4f}\"></i>", name, seconds / use.seconds());
  return out + "</div>";
}

void put_stretches(JsonWriter& json, const ReportResult& result) {
  json.key("longest_idle").begin_array();
  for (const IdleStretch& one : result.longest) {
    const trace::TraceGpu& gpu = result.trace.gpus[one.gpu];
    json.begin_object().member("gpu", printable(gpu.label)).member_or_null("uuid", printable(gpu.uuid));
    const trace::RecordedJob nobody_told;
    const trace::RecordedJob& who = one.holder > trace::kNobody ? result.trace.holders[one.holder] : nobody_told;
    json.member_or_null("host", printable(gpu.host)).member_or_null("user", printable(who.user_text()));
    json.member_or_null("command", printable(who.command)).member_or_null("job", printable(who.job));
    json.member("from", moment_text(result.trace, one.from)).member("to", moment_text(result.trace, one.to));
    json.member("seconds", to_seconds(one.length())).member("until_the_end", one.open).end_object();
  }
  json.end_array();
}

// Whole percent of each hour; null where nothing was seen of it.
void put_hours(JsonWriter& json, const ReportResult& result) {
  const UseByHour& all = result.hours;
  const auto percent_of = [](float seconds) { return std::lround(seconds / 36); };
  json.key("by_hour").begin_object();
  json.member("first", moment_text(result.trace, Instant(std::chrono::hours(all.first)))).member("hours", all.count);
  json.key("people").begin_array();
  for (const std::string& name : all.people) json.value(printable(name));
  json.end_array().key("gpus").begin_array();
  for (std::size_t i = 0; i < all.gpus.size() && i < result.trace.gpus.size(); ++i) {
    const trace::TraceGpu& gpu = result.trace.gpus[i];
    json.begin_object().member("gpu", printable(gpu.label)).member_or_null("uuid", printable(gpu.uuid));
    json.member_or_null("host", printable(gpu.host));
    const std::array<std::pair<std::string_view, float HourOfUse::*>, 4> parts = {{{"busy", &HourOfUse::busy},
                                                                                   {"idle", &HourOfUse::idle},
                                                                                   {"hung", &HourOfUse::hung},
                                                                                   {"free", &HourOfUse::free}}};
    for (const auto& [name, part] : parts) {
      json.key(fmt::format("{}_percent", name)).begin_array();
      for (const HourOfUse& hour : all.gpus[i]) hour.seen() > 0 ? json.value(percent_of(hour.*part)) : json.null();
      json.end_array();
    }
    json.key("person").begin_array();
    for (const HourOfUse& hour : all.gpus[i]) hour.person >= 0 ? json.value(hour.person) : json.null();
    json.end_array().end_object();
  }
  json.end_array().end_object();
}

struct PageColumn {
  std::string title;
  std::function<std::string(const Use&)> cell;
};

// In the order of the table on a terminal.
std::vector<PageColumn> page_columns(const ReportResult& result, std::optional<double> price) {
  const auto sum = [](double Use::* part) { return [part](const Use& use) { return hours_text(use.*part); }; };
  std::vector<PageColumn> columns = {
      {"GPU-hours", [](const Use& use) { return hours_text(use.seconds()); }},
      {"busy", sum(&Use::busy)},
      {"held idle", sum(&Use::idle)},
  };
  for (std::size_t i = 0; i < kStretches.size(); ++i)
    columns.push_back(
        {fmt::format("over {}", kStretches[i].name), [i](const Use& use) { return hours_text(use.idle_over[i]); }});
  columns.push_back(
      {"hung", [&](const Use& use) { return result.judges_hangs ? hours_text(use.hung) : std::string("–"); }});
  columns.push_back({"not judged", sum(&Use::not_judged)});
  columns.push_back({"free", sum(&Use::free)});
  columns.push_back({"not known", sum(&Use::unknown)});
  columns.push_back({"kWh", [](const Use& use) {
                       const auto energy = kilowatt_hours(use);
                       return energy ? figure_text(*energy) : std::string("–");
                     }});
  if (!price) return columns;
  const auto cost = [price](double seconds) { return fmt::format("{:.2f}", hours(seconds) * *price); };
  columns.push_back({"cost of idle and hung", [cost](const Use& use) { return cost(use.idle + use.hung); }});
  columns.push_back({"of it past 1h", [cost](const Use& use) { return cost(use.recoverable()); }});
  return columns;
}

void append_table(std::string& out, const ReportResult& result, ReportBy by, std::optional<double> price) {
  const std::vector<PageColumn> columns = page_columns(result, price);
  out += fmt::format(
      "<section class=\"card\"><h2>By {0}</h2><div class=\"scroll\"><table class=\"many\"><thead><tr><th "
      "class=\"l\">{0}</th>"
      "<th class=\"l\">how it was used</th>",
      by_text(by));
  for (const PageColumn& column : columns) out += fmt::format("<th>{}</th>", column.title);
  out += "</tr></thead><tbody>";
  for (const UseOf& of : add_up(result, by)) {
    out += fmt::format(
        "<tr><td class=\"l wrap\" data-label=\"{}\">{}</td><td class=\"l\" data-label=\"how it was used\">{}</td>",
        by_text(by), escaped(owner_text(of, by)), bar(of.use));
    for (const PageColumn& column : columns)
      out += fmt::format("<td data-label=\"{}\">{}</td>", column.title, column.cell(of.use));
    out += "</tr>";
  }
  out += "</tbody></table></div></section>";
}

}  // namespace

std::string_view by_text(ReportBy by) { return kReportByNames[static_cast<std::size_t>(by)]; }

std::string owner_text(const UseOf& of, ReportBy by) {
  if (of.nobody) return "nobody";
  const std::string& name = by == ReportBy::command ? of.command : by == ReportBy::host ? of.host : of.user;
  return name.empty() ? "not told" : name;
}

std::string report_answer(const ReportResult& result, std::optional<double> price) {
  const Use& use = result.total;
  const double all = use.seconds();
  if (!(all > 0)) return "Nothing was seen long enough to tell how the GPUs were used.";
  const auto share = [&](double part) { return share_text(part / all); };
  // What was not judged is not said to be none.
  std::string hung = result.judges_hangs ? fmt::format(", {} hung", share(use.hung)) : "";
  if (use.not_judged > 0)
    hung += fmt::format(", {} busy or hung (not judged: {})", share(use.not_judged), result.not_judged_since);
  std::string text = fmt::format("Of {} GPU-hours, {} were busy, {} held idle{} and {} free", hours_text(all),
                                 share(use.busy), share(use.idle), hung, share(use.free));
  if (use.unknown > 0) text += fmt::format("; of {} nothing is known", share(use.unknown));
  if (price)
    text += fmt::format(". The hours {} cost {:.2f} of {:.2f}", result.judges_hangs ? "held idle or hung" : "held idle",
                        hours(use.idle + use.hung) * *price, hours(all) * *price);
  text += ".";
  if (use.idle <= 0) return text;
  // Not all of it is recoverable.
  text += fmt::format(
      " Of the {} held idle, {} were in stretches longer than 1h; ending jobs after 1h would have freed at most {}",
      hours_text(use.idle), hours_text(use.idle_over[kRecoverable]), hours_text(use.recoverable()));
  return text + (price ? fmt::format(", worth {:.2f}.", hours(use.recoverable()) * *price) : ".");
}

std::string report_basis(const ReportResult& result) {
  std::string text = fmt::format("{}, {} to {}", count_of(result.trace.gpus.size(), "GPU"),
                                 moment_text(result.trace, result.first), moment_text(result.trace, result.last));
  text += result.gap_seconds > 0 ? fmt::format(", {} GPU-hours in gaps", hours_text(result.gap_seconds)) : ", no gaps";
  const std::uint64_t left_out = result.trace.bad_rows + result.trace.duplicates;
  text += left_out > 0 ? fmt::format(", {} left out", count_of(left_out, "row")) : ", no rows left out";
  text += "; idle is " + printable(result.idle_rule);
  text += result.judges_hangs ? ", hung is " + printable(result.hung_rule)
                              : ", hangs are not told apart (the trace lacks what that rule looks at)";
  if (result.total.not_judged > 0)
    text += fmt::format("; {} GPU-hours not judged for hangs: {}", hours_text(result.total.not_judged),
                        result.not_judged_since);
  if (const auto energy = kilowatt_hours(result.total)) text += fmt::format("; {} kWh", figure_text(*energy));
  return text + "." + readings_text(result.means, result.intervals);
}

std::string report_json(const ReportResult& result, std::optional<double> price) {
  JsonWriter json;
  json.begin_object().member("answer", report_answer(result, price)).member("basis", report_basis(result));
  json.member("idle_rule", printable(result.idle_rule)).member("hung_rule", printable(result.hung_rule));
  json.member("judges_hangs", result.judges_hangs).member_or_null("not_judged_reason", result.not_judged_since);
  json.member("readings", result.means ? "mean" : "moment")
      .member("interval_seconds", to_seconds(result.intervals.usual));
  json.member("long_interval_seconds", to_seconds(result.intervals.longer));
  json.member("gpus", result.trace.gpus.size());
  json.member("samples", result.trace.samples).member("from", moment_text(result.trace, result.first));
  json.member("to", moment_text(result.trace, result.last)).member("gap_hours", hours(result.gap_seconds));
  json.member("bad_rows", result.trace.bad_rows).member("duplicates", result.trace.duplicates);
  if (price) json.member("price_per_hour", *price);
  json.key("totals").begin_object();
  put_fields(json, use_fields(result, result.total, price));
  json.end_object();
  for (const ReportBy by : {ReportBy::user, ReportBy::command, ReportBy::host, ReportBy::all}) {
    json.key(by == ReportBy::all ? "uses" : fmt::format("by_{}", by_text(by))).begin_array();
    for (const UseOf& of : add_up(result, by)) {
      json.begin_object();
      put_name(json, of, by);
      put_fields(json, use_fields(result, of.use, price));
      json.end_object();
    }
    json.end_array();
  }
  put_stretches(json, result);
  if (!result.hours.gpus.empty()) put_hours(json, result);
  return json.end_object().take() + '\n';
}

std::string report_csv(const ReportResult& result, ReportBy by, std::optional<double> price) {
  const bool all = by == ReportBy::all;
  // Each field has a comma behind it, the last one a line end instead.
  const auto ended = [](std::string line) {
    line.back() = '\n';
    return line;
  };
  std::string out = ended(fmt::format("{},{}", all ? "user,command,host" : by_text(by),
                                      csv_names(use_fields(result, result.total, price))));
  for (const UseOf& of : add_up(result, by)) {
    if (all)
      out +=
          fmt::format("{},{},{},", csv_text(of.nobody ? "nobody" : of.user), csv_text(of.command), csv_text(of.host));
    else
      out += csv_text(owner_text(of, by)) + ",";
    out += ended(csv_values(use_fields(result, of.use, price)));
  }
  return out;
}

std::string report_html(const ReportResult& result, std::optional<double> price) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
      "<title>{}: lull report</title>\n<style>\n",
      escaped(result.name));
  out += packed_page_css;
  out +=
      ".use { display: flex; width: 100%; min-width: 120px; height: 14px; border-radius: 3px; overflow: hidden; }\n"
      ".use i.busy, .legend i.busy { background: var(--busy); } .use i.idle, .legend i.idle { background: var(--back); "
      "}\n"
      ".use i.hung, .legend i.hung { background: var(--regret); } .use i.free, .legend i.free { background: "
      "var(--kept); }\n"
      ".use i.unjudged, .legend i.unjudged { background: repeating-linear-gradient(90deg, var(--busy) 0 3px, "
      "var(--regret) 3px 5px); }\n"
      ".use i.none { background: repeating-linear-gradient(45deg, var(--hatch) 0 2px, var(--none) 2px 5px); }\n"
      "</style></head>\n<body><main>\n";
  out += fmt::format("<p class=\"sub\">{}</p><h1>{}</h1><p class=\"sub\">{}</p>", escaped(result.name),
                     escaped(report_answer(result, price)), escaped(report_basis(result)));
  out +=
      "<div class=\"legend\"><span><i class=\"busy\"></i>busy</span><span><i class=\"idle\"></i>held idle</span>"
      "<span><i class=\"hung\"></i>hung</span><span><i class=\"unjudged\"></i>busy or hung, not judged</span><span><i "
      "class=\"free\"></i>free</span>"
      "<span><i class=\"none\"></i>not known</span></div>\n";
  for (const ReportBy by : {ReportBy::user, ReportBy::command, ReportBy::host}) append_table(out, result, by, price);
  return out + "\n</main></body></html>\n";
}

}  // namespace lull::replay
