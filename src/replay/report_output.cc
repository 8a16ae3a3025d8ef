#include "replay/report_output.h"

#include <fmt/format.h>

#include <array>

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

void put_use(JsonWriter& json, const ReportResult& result, const Use& use, std::optional<double> price) {
  json.member("gpu_hours", hours(use.seconds())).member("busy_hours", hours(use.busy));
  json.member("idle_hours", hours(use.idle))
      .member("hung_hours", result.judges_hangs ? std::optional(hours(use.hung)) : std::nullopt);
  json.member("free_hours", hours(use.free)).member("unknown_hours", hours(use.unknown));
  json.member("energy_kwh", kilowatt_hours(use));
  if (!price) return;
  json.member("cost", hours(use.seconds()) * *price);
  json.member("wasted_cost", hours(use.idle + use.hung) * *price);
}

void put_name(JsonWriter& json, const UseOf& of, ReportBy by) {
  if (by == ReportBy::user || by == ReportBy::all) json.member_or_null("user", printable(of.user));
  if (by == ReportBy::command || by == ReportBy::all) json.member_or_null("command", printable(of.command));
  if (by == ReportBy::host || by == ReportBy::all) json.member_or_null("host", printable(of.host));
  json.member("nobody", of.nobody);
}

std::string moment_of(const ReportResult& result, Instant at) {
  const std::int64_t ns = at.time_since_epoch().count();
  if (!result.trace.from_epoch) return fmt::format("{}s", static_cast<double>(ns) / 1e9);
  return trace::format_time(ns, result.trace.zoned, result.trace.zone_minutes);
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

std::string csv_word(std::string_view text) {
  const std::string safe = printable(text);
  if (safe.find_first_of(",\"") == std::string::npos) return safe;
  std::string out = "\"";
  for (const char c : safe) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string bar(const Use& use) {
  std::string out = "<div class=\"use\">";
  const std::array<std::pair<const char*, double>, 5> parts = {
      {{"busy", use.busy}, {"idle", use.idle}, {"hung", use.hung}, {"free", use.free}, {"none", use.unknown}}};
  for (const auto& [name, seconds] : parts)
    if (seconds > 0) out += fmt::format("<i class=\"{}\" style=\"flex:{:.4f}\"></i>", name, seconds / use.seconds());
  return out + "</div>";
}

void append_table(std::string& out, const ReportResult& result, ReportBy by, std::optional<double> price) {
  out += fmt::format(
      "<section class=\"card\"><h2>By {}</h2><div class=\"scroll\"><table><thead><tr><th class=\"l\">{}</th>"
      "<th class=\"l middle\">how it was used</th><th>GPU-hours</th><th>busy</th><th>held idle</th><th>hung</th>"
      "<th class=\"middle\">free</th><th class=\"wide\">not known</th><th "
      "class=\"middle\">kWh</th>{}</tr></thead><tbody>",
      by_text(by), by_text(by), price ? "<th>wasted</th>" : "");
  for (const UseOf& of : add_up(result, by)) {
    const auto energy = kilowatt_hours(of.use);
    out += fmt::format(
        "<tr><td class=\"l wrap\">{}</td><td class=\"l middle\">{}</td><td>{:.1f}</td><td>{:.1f}</td>"
        "<td class=\"back\">{:.1f}</td><td{}>{}</td><td class=\"middle\">{:.1f}</td>"
        "<td class=\"wide\">{:.1f}</td><td class=\"middle\">{}</td>{}</tr>",
        escaped(whose_text(of, by)), bar(of.use), hours(of.use.seconds()), hours(of.use.busy), hours(of.use.idle),
        of.use.hung > 0 ? " class=\"regret\"" : "",
        result.judges_hangs ? fmt::format("{:.1f}", hours(of.use.hung)) : "–", hours(of.use.free),
        hours(of.use.unknown), energy ? fmt::format("{:.1f}", *energy) : "–",
        price ? fmt::format("<td>{:.2f}</td>", hours(of.use.idle + of.use.hung) * *price) : "");
  }
  out += "</tbody></table></div></section>";
}

}  // namespace

std::string_view by_text(ReportBy by) {
  switch (by) {
    case ReportBy::user: return "user";
    case ReportBy::command: return "command";
    case ReportBy::host: return "host";
    case ReportBy::all: return "all";
  }
  return "all";
}

std::string whose_text(const UseOf& of, ReportBy by) {
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
  const std::string hung = result.judges_hangs ? fmt::format(", {} hung", share(use.hung)) : "";
  std::string text = fmt::format("Of {:.1f} GPU-hours, {} were busy, {} held idle{} and {} free", hours(all),
                                 share(use.busy), share(use.idle), hung, share(use.free));
  if (use.unknown > 0) text += fmt::format("; of {} nothing is known", share(use.unknown));
  if (price)
    text += fmt::format(". {}, {:.2f} of {:.2f} were wasted", result.judges_hangs ? "Held idle or hung" : "Held idle",
                        hours(use.idle + use.hung) * *price, hours(all) * *price);
  return text + ".";
}

std::string report_basis(const ReportResult& result) {
  std::string text =
      fmt::format("{} GPU{}, {} to {}", result.trace.gpus.size(), result.trace.gpus.size() == 1 ? "" : "s",
                  moment_of(result, result.first), moment_of(result, result.last));
  text += result.gap_seconds > 0 ? fmt::format(", {:.1f} GPU-hours in gaps", hours(result.gap_seconds)) : ", no gaps";
  const std::uint64_t left_out = result.trace.bad_rows + result.trace.duplicates;
  text += left_out > 0 ? fmt::format(", {} row{} left out", left_out, left_out == 1 ? "" : "s") : ", no rows left out";
  text += "; idle is " + printable(result.idle_rule);
  text += result.judges_hangs ? ", hung is " + printable(result.hung_rule)
                              : ", hangs are not told apart (the trace lacks what that rule looks at)";
  if (const auto energy = kilowatt_hours(result.total)) text += fmt::format("; {:.1f} kWh", *energy);
  return text + ".";
}

std::string report_json(const ReportResult& result, std::optional<double> price) {
  JsonWriter json;
  json.begin_object().member("answer", report_answer(result, price)).member("basis", report_basis(result));
  json.member("idle_rule", printable(result.idle_rule)).member("hung_rule", printable(result.hung_rule));
  json.member("judges_hangs", result.judges_hangs).member("gpus", result.trace.gpus.size());
  json.member("samples", result.trace.samples).member("from", moment_of(result, result.first));
  json.member("to", moment_of(result, result.last)).member("gap_hours", hours(result.gap_seconds));
  json.member("bad_rows", result.trace.bad_rows).member("duplicates", result.trace.duplicates);
  if (price) json.member("price_per_hour", *price);
  json.key("totals").begin_object();
  put_use(json, result, result.total, price);
  json.end_object();
  for (const ReportBy by : {ReportBy::user, ReportBy::command, ReportBy::host, ReportBy::all}) {
    json.key(by == ReportBy::all ? "uses" : fmt::format("by_{}", by_text(by))).begin_array();
    for (const UseOf& of : add_up(result, by)) {
      json.begin_object();
      put_name(json, of, by);
      put_use(json, result, of.use, price);
      json.end_object();
    }
    json.end_array();
  }
  return json.end_object().take() + '\n';
}

std::string report_csv(const ReportResult& result, ReportBy by, std::optional<double> price) {
  const bool all = by == ReportBy::all;
  std::string out = all ? "user,command,host" : std::string(by_text(by));
  out += ",gpu_hours,busy_hours,idle_hours,hung_hours,free_hours,unknown_hours,energy_kwh";
  out += price ? ",cost,wasted_cost\n" : "\n";
  for (const UseOf& of : add_up(result, by)) {
    if (all)
      out += fmt::format("{},{},{}", csv_word(of.nobody ? "nobody" : of.user), csv_word(of.command), csv_word(of.host));
    else
      out += csv_word(whose_text(of, by));
    const auto energy = kilowatt_hours(of.use);
    out += fmt::format(",{},{},{},{},{},{},{}", hours(of.use.seconds()), hours(of.use.busy), hours(of.use.idle),
                       result.judges_hangs ? fmt::format("{}", hours(of.use.hung)) : "", hours(of.use.free),
                       hours(of.use.unknown), energy ? fmt::format("{}", *energy) : "");
    if (price)
      out += fmt::format(",{},{}", hours(of.use.seconds()) * *price, hours(of.use.idle + of.use.hung) * *price);
    out += '\n';
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
      ".use i.none { background: repeating-linear-gradient(45deg, var(--hatch) 0 2px, var(--none) 2px 5px); }\n"
      "</style></head>\n<body><main>\n";
  out += fmt::format("<p class=\"sub\">{}</p><h1>{}</h1><p class=\"sub\">{}</p>", escaped(result.name),
                     escaped(report_answer(result, price)), escaped(report_basis(result)));
  out +=
      "<div class=\"legend\"><span><i class=\"busy\"></i>busy</span><span><i class=\"idle\"></i>held idle</span>"
      "<span><i class=\"hung\"></i>hung</span><span><i class=\"free\"></i>free</span>"
      "<span><i class=\"none\"></i>not known</span></div>\n";
  for (const ReportBy by : {ReportBy::user, ReportBy::command, ReportBy::host}) append_table(out, result, by, price);
  return out + "\n</main></body></html>\n";
}

}  // namespace lull::replay
