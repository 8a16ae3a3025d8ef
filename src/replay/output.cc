#include "replay/output.h"

#include <fmt/format.h>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"
#include "replay/answer.h"
#include "replay/hurt.h"
#include "trace/time.h"

namespace lull::replay {
namespace {

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// What ending would really have done.
void put_ends(JsonWriter& json, const Totals& totals, double gap_seconds, std::optional<double> price) {
  json.member("jobs", totals.jobs).member("ended", totals.ended).member("worked_again", totals.worked_again);
  json.member("work_lost_ratio", totals.lost_ratio()).member("saved_hours", hours(totals.saved_seconds));
  json.member("gap_hours", hours(gap_seconds));
  json.member("chance_back_1h", totals.back.chance_within(std::chrono::hours(1)));
  json.member("chance_back_4h", totals.back.chance_within(std::chrono::hours(4)));
  json.member("work_hours", hours(totals.work_seconds)).member("work_lost_hours", hours(totals.lost_seconds));
  if (price) json.member("saved_cost", hours(totals.saved_seconds) * *price);
}

void put_totals(JsonWriter& json, const Totals& totals, double seen_seconds, std::optional<double> price) {
  json.member("firings", totals.firings).member("came_back", totals.came_back);
  json.member("came_back_percent", percent(static_cast<double>(totals.came_back), static_cast<double>(totals.firings)));
  json.member("regretted", totals.regretted).member("stretches", totals.stretches);
  json.member("idle_hours", hours(totals.idle_seconds)).member("reclaimed_hours", hours(totals.reclaimed_seconds));
  json.member("reclaimed_percent", percent(totals.reclaimed_seconds, seen_seconds));
  if (!price) return;
  json.member("idle_cost", hours(totals.idle_seconds) * *price);
  json.member("reclaimed_cost", hours(totals.reclaimed_seconds) * *price);
}

void put_event(JsonWriter& json, const ReplayResult& result, const Firing& firing) {
  json.begin_object().member("gpu", printable(gpu_text(result, firing.gpu)));
  json.member("at", moment_text(result, firing.at)).member("at_seconds", to_seconds(firing.at.time_since_epoch()));
  json.member("idle_seconds", to_seconds(firing.idle)).member("after_seconds", to_seconds(firing.after));
  json.member("came_back", firing.ending == StretchEnd::came_back).member("regretted", firing.regretted);
  json.member("ended", ending_text(firing.ending)).end_object();
}

void put_end(JsonWriter& json, const ReplayResult& result, const End& end) {
  json.begin_object().member("gpu", printable(gpu_text(result, end.gpu)));
  json.member("at", moment_text(result, end.at)).member("at_seconds", to_seconds(end.at.time_since_epoch()));
  json.member("worked_again", end.back.has_value());
  json.key("back_after_seconds");
  end.back ? json.value(to_seconds(*end.back - end.at)) : json.null();
  json.member("then", leaving_text(end.how)).member("work_lost_hours", hours(end.lost_seconds));
  json.member("saved_hours", hours(end.saved_seconds));
  if (end.holder > trace::kNobody) {
    const trace::Holder& holder = result.trace.holders[end.holder];
    json.member_or_null("user", printable(holder.user_text())).member_or_null("job", printable(holder.job));
    json.key("pids").begin_array();
    for (const std::string& pid : holder.pids) json.value(printable(pid));
    json.end_array()
        .member_or_null("command", printable(holder.command))
        .member_or_null("lease", printable(holder.lease));
    json.member_or_null("host", printable(holder.host));
  }
  json.end_object();
}

void put_hurt(JsonWriter& json, const ReplayResult& result) {
  json.key("hurt").begin_array();
  for (const Hurt& hurt : whom_it_hurt(result)) {
    json.begin_object().member_or_null("user", printable(hurt.user)).member_or_null("command", printable(hurt.command));
    json.member_or_null("host", printable(hurt.host)).member("ended", hurt.ended);
    json.member("worked_again", hurt.worked_again).member("work_lost_hours", hours(hurt.lost_seconds));
    json.member("saved_hours", hours(hurt.saved_seconds)).end_object();
  }
  json.end_array();
}

void put_gpu(JsonWriter& json, const ReplayResult& result, const GpuResult& gpu, std::optional<double> price) {
  json.begin_object().member("gpu", printable(gpu.label)).member_or_null("uuid", printable(gpu.uuid));
  json.member("samples", gpu.samples).member("seen_hours", hours(to_seconds(gpu.seen)));
  if (result.per == Per::gpu) put_ends(json, gpu.totals, to_seconds(gpu.missed), price);
  if (result.per == Per::gpu) put_totals(json, gpu.totals, to_seconds(gpu.seen), price);
  json.end_object();
}

void put_sweep_row(JsonWriter& json, const ReplayResult& result, const SweepRow& row, std::optional<double> price) {
  json.begin_object();
  for (std::size_t a = 0; a < result.axes.size(); ++a) {
    json.member(result.axes[a].name, printable(row.values[a]));
    if (result.axes[a].name != "for") continue;
    if (const auto span = parse_duration(row.values[a])) json.member("for_seconds", to_seconds(*span));
  }
  json.member("rule", printable(row.rule));
  put_ends(json, row.totals, result.gap_seconds, price);
  put_totals(json, row.totals, result.seen_seconds, price);
  json.member("knee", row.knee).end_object();
}

void put_sweep(JsonWriter& json, const ReplayResult& result, std::optional<double> price) {
  json.key("sweep").begin_array();
  for (const SweepRow& row : result.sweep) put_sweep_row(json, result, row, price);
  json.end_array();
  if (!result.has_for_axis()) return;
  const SweepRow* first = nullptr;
  json.key("knees").begin_array();
  for (const SweepRow& row : result.sweep) {
    if (!row.knee) continue;
    put_sweep_row(json, result, row, price);
    if (first == nullptr) first = &row;
  }
  json.end_array();
  if (result.axes.size() != 1) return;
  json.key("knee");
  if (first == nullptr)
    json.null();
  else
    put_sweep_row(json, result, *first, price);
}

std::string csv_text(std::string_view text) {
  std::string safe = printable(text);
  if (safe.find_first_of(",\"") == std::string::npos) return safe;
  std::string out = "\"";
  for (const char c : safe) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + '"';
}

}  // namespace

double hours(double seconds) { return seconds / 3600; }

std::optional<double> percent(double part, double whole) {
  return whole > 0 ? std::optional(100 * part / whole) : std::nullopt;
}

std::string moment_text(const ReplayResult& result, Instant at) {
  const std::int64_t ns = at.time_since_epoch().count();
  if (result.trace.from_epoch) return trace::format_time(ns, result.trace.zoned, result.trace.zone_minutes);
  return fmt::format("{}s", to_seconds(at.time_since_epoch()));
}

std::string_view ending_text(StretchEnd ending) {
  switch (ending) {
    case StretchEnd::came_back: return "came back";
    case StretchEnd::unknown: return "unknown";
    case StretchEnd::gap: return "gap";
    case StretchEnd::end: return "end of trace";
    case StretchEnd::over: return "job ended";
  }
  return "end of trace";
}

std::string_view leaving_text(Leaving how) {
  switch (how) {
    case Leaving::came_back: return "worked again";
    case Leaving::released: return "released";
    case Leaving::cut_off: return "end of trace";
  }
  return "end of trace";
}

std::string gpu_text(const ReplayResult& result, std::size_t gpu) {
  if (result.per == Per::job || result.per == Per::host)
    return gpu < result.subjects.size() ? result.subjects[gpu].label : "?";
  return gpu < result.gpus.size() ? result.gpus[gpu].label : "all";
}

void put_result(JsonWriter& json, const ReplayResult& result, std::optional<double> price, bool with_events) {
  json.begin_object().member("rule", printable(result.rule)).member_or_null("arm", printable(result.arm));
  json.member("per", per_text(result.per)).member("regret_seconds", to_seconds(result.regret));
  json.member("answer", answer(result)).member("basis", basis(result)).member("lose_ratio", result.lose);
  json.key("totals").begin_object();
  put_ends(json, result.totals, result.gap_seconds, price);
  json.member("seen_hours", hours(result.seen_seconds));
  put_totals(json, result.totals, result.seen_seconds, price);
  json.end_object();
  json.member("from", moment_text(result, result.first)).member("to", moment_text(result, result.last));
  json.member("gpus", result.gpus.size()).member("samples", result.samples);
  json.member("seen_hours", hours(result.seen_seconds));
  put_totals(json, result.totals, result.seen_seconds, price);
  if (price) json.member("price_per_hour", *price);
  json.member("bad_rows", result.trace.bad_rows).member("duplicates", result.trace.duplicates);
  json.member("out_of_order", result.trace.out_of_order).member("bytes", result.trace.bytes);
  json.key("per_gpu").begin_array();
  for (const GpuResult& gpu : result.gpus) put_gpu(json, result, gpu, price);
  json.end_array().key("events").begin_array();
  if (with_events)
    for (const Firing& firing : result.firings) put_event(json, result, firing);
  json.end_array();
  put_hurt(json, result);
  json.key("ends").begin_array();
  if (with_events)
    for (const End& end : result.ends) put_end(json, result, end);
  json.end_array();
  if (!result.axes.empty()) put_sweep(json, result, price);
  json.end_object();
}

std::string to_json(const ReplayResult& result, std::optional<double> price) {
  JsonWriter json;
  put_result(json, result, price, true);
  return json.take() + '\n';
}

std::string to_csv(const ReplayResult& result, std::optional<double> price) {
  std::string out;
  if (result.axes.empty()) {
    out = "gpu,time,idle_seconds,after_seconds,ended,came_back,regretted\n";
    for (const Firing& firing : result.firings)
      out += fmt::format("{},{},{},{},{},{:d},{:d}\n", csv_text(gpu_text(result, firing.gpu)),
                         moment_text(result, firing.at), to_seconds(firing.idle), to_seconds(firing.after),
                         ending_text(firing.ending), firing.ending == StretchEnd::came_back, firing.regretted);
    return out;
  }
  for (const Axis& axis : result.axes) out += axis.name + ",";
  out += "jobs,ended,worked_again,work_lost_ratio,saved_hours,gap_hours,chance_back_1h,chance_back_4h,";
  out += "firings,came_back,regretted,idle_hours,reclaimed_hours,reclaimed_percent,";
  if (price) out += "reclaimed_cost,";
  out += "knee,rule\n";
  for (const SweepRow& row : result.sweep) {
    for (const std::string& value : row.values) out += csv_text(value) + ",";
    const Totals& totals = row.totals;
    const auto share = percent(totals.reclaimed_seconds, result.seen_seconds);
    const auto maybe = [](std::optional<double> number) { return number ? fmt::format("{}", *number) : ""; };
    out += fmt::format("{},{},{},{},{},{},{},{},", totals.jobs, totals.ended, totals.worked_again,
                       maybe(totals.lost_ratio()), hours(totals.saved_seconds), hours(result.gap_seconds),
                       maybe(totals.back.chance_within(std::chrono::hours(1))),
                       maybe(totals.back.chance_within(std::chrono::hours(4))));
    out += fmt::format("{},{},{},{},{},{},", totals.firings, totals.came_back, totals.regretted,
                       hours(totals.idle_seconds), hours(totals.reclaimed_seconds), maybe(share));
    if (price) out += fmt::format("{},", hours(totals.reclaimed_seconds) * *price);
    out += fmt::format("{:d},{}\n", row.knee, csv_text(row.rule));
  }
  return out;
}

}  // namespace lull::replay
