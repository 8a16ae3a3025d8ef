#include "replay/output.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "replay/answer.h"
#include "replay/recommend.h"
#include "trace/time.h"

namespace lull::replay {
namespace {

// What ending would really have done.
Fields end_fields(const Totals& totals) {
  Fields fields = {
      {"jobs", totals.jobs},
      {"ended", totals.ended},
      {"worked_again", totals.worked_again},
      {"not_seen_again", totals.not_seen_again()},
      {"follow_up_median_seconds", totals.follow_up_median()},
      {"work_lost_ratio", totals.lost_ratio()},
      {"work_lost_low", totals.lost_low},
      {"work_lost_high", totals.lost_high},
      {"freed_hours", hours(totals.freed_seconds())},
      {"freed_until_return_hours", hours(totals.freed_until_return)},
      {"freed_until_release_hours", hours(totals.freed_until_release)},
      {"freed_until_recording_end_hours", hours(totals.freed_until_recording_end)},
  };
  for (const int within : {1, 4, 24}) {
    const auto limit = std::chrono::hours(within);
    const auto chance = totals.back.chance_within(limit);
    const auto all = totals.back.estimate(limit);
    const std::string name = fmt::format("return_{}h_", within);
    fields.emplace_back(name + "ratio", chance ? std::optional(chance->ratio) : std::nullopt);
    fields.emplace_back(name + "low", chance ? std::optional(chance->low) : std::nullopt);
    fields.emplace_back(name + "high", chance ? std::optional(chance->high) : std::nullopt);
    fields.emplace_back(name + "at_risk", all ? all->at_risk : 0);
  }
  return fields;
}

void put_ends(JsonWriter& json, const Totals& totals, double gap_seconds, std::optional<double> price) {
  put_fields(json, end_fields(totals));
  json.member("gap_hours", hours(gap_seconds));
  json.member("work_hours", hours(totals.work_seconds)).member("work_lost_hours", hours(totals.lost_seconds));
  if (price) json.member("freed_cost", hours(totals.freed_seconds()) * *price);
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
  json.member("at", moment_text(result.trace, firing.at))
      .member("at_seconds", to_seconds(firing.at.time_since_epoch()));
  json.member("idle_seconds", to_seconds(firing.idle)).member("after_seconds", to_seconds(firing.after));
  json.member("came_back", firing.ending == StretchEnd::came_back).member("regretted", firing.regretted);
  json.member("ended", ending_text(firing.ending)).end_object();
}

void put_end(JsonWriter& json, const ReplayResult& result, const End& end) {
  json.begin_object().member("gpu", printable(gpu_text(result, end.gpu)));
  json.member("at", moment_text(result.trace, end.at)).member("at_seconds", to_seconds(end.at.time_since_epoch()));
  json.member("worked_again", end.back.has_value());
  json.key("back_after_seconds");
  end.back ? json.value(to_seconds(*end.back - end.at)) : json.null();
  json.member("then", leaving_text(end.how)).member("work_lost_hours", hours(end.lost_seconds));
  json.member("freed_hours", hours(end.freed_seconds));
  json.member("followed_seconds", to_seconds(end.followed));
  if (end.holder > trace::kNobody) {
    const trace::RecordedJob& holder = result.trace.holders[end.holder];
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
  for (const Hurt& hurt : hurt_owners(result)) {
    json.begin_object().member_or_null("user", printable(hurt.user)).member_or_null("command", printable(hurt.command));
    json.member_or_null("host", printable(hurt.host)).member("ended", hurt.ended);
    json.member("worked_again", hurt.worked_again).member("work_lost_hours", hours(hurt.lost_seconds));
    json.member("freed_hours", hours(hurt.freed_seconds)).end_object();
  }
  json.end_array();
}

void put_gpu(JsonWriter& json, const ReplayResult& result, const GpuResult& gpu, const OutputOptions& how) {
  json.begin_object().member("gpu", printable(gpu.label)).member_or_null("uuid", printable(gpu.uuid));
  json.member("samples", gpu.samples).member("seen_hours", hours(to_seconds(gpu.seen)));
  if (result.per == Per::gpu) put_ends(json, gpu.totals, to_seconds(gpu.missed), how.price);
  if (result.per == Per::gpu && how.verbose) put_totals(json, gpu.totals, to_seconds(gpu.seen), how.price);
  json.end_object();
}

void put_sweep(JsonWriter& json, const ReplayResult& result, const OutputOptions& how) {
  json.key("sweep").begin_array();
  for (const SweepRow& row : result.sweep) {
    json.begin_object();
    for (std::size_t a = 0; a < result.axes.size(); ++a) {
      json.member(result.axes[a].name, printable(row.values[a]));
      if (result.axes[a].name != "for") continue;
      if (const auto span = parse_duration(row.values[a])) json.member("for_seconds", to_seconds(*span));
    }
    json.member("rule", printable(row.rule));
    put_ends(json, row.totals, result.gap_seconds, how.price);
    if (how.verbose) put_totals(json, row.totals, result.seen_seconds, how.price);
    json.member("recommended", row.recommended).member("closest", row.closest).end_object();
  }
  json.end_array();
}

void put_recommendation(JsonWriter& json, const ReplayResult& result) {
  json.key("recommendation");
  if (const auto& chosen = result.recommendation)
    json.begin_object()
        .member("value", chosen->value)
        .member("rule", printable(chosen->rule))
        .member("strength", chosen->firm ? "firm" : "weak")
        .member("reason", chosen->reason)
        .end_object();
  else
    json.null();
  json.member_or_null("recommendation_missing", result.recommendation_missing);
}

}  // namespace

double hours(double seconds) { return seconds / 3600; }

void put_fields(JsonWriter& json, const Fields& fields) {
  for (const auto& [name, value] : fields) json.member(name, value);
}

std::string csv_names(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) out += name + ",";
  return out;
}

std::string csv_values(const Fields& fields) {
  std::string out;
  for (const auto& [name, value] : fields) out += value ? fmt::format("{},", *value) : ",";
  return out;
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

std::optional<double> percent(double part, double whole) {
  return whole > 0 ? std::optional(100 * part / whole) : std::nullopt;
}

std::string moment_text(const trace::TraceReport& trace, Instant at) {
  const std::int64_t ns = at.time_since_epoch().count();
  if (trace.from_epoch) return trace::format_time(ns, trace.zoned, trace.zone_minutes);
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

void put_result(JsonWriter& json, const ReplayResult& result, const OutputOptions& how) {
  json.begin_object().member("rule", printable(result.rule)).member_or_null("arm", printable(result.arm));
  json.member("per", per_text(result.per)).member("answer", answer(result)).member("basis", basis(result));
  put_recommendation(json, result);
  json.key("except_users").begin_array();
  for (const std::string& user : result.except_users) json.value(printable(user));
  json.end_array().member("left_out", result.left_out);
  json.member("lose_ratio", result.lose).key("totals").begin_object();
  put_ends(json, result.totals, result.gap_seconds, how.price);
  json.member("seen_hours", hours(result.seen_seconds));
  if (how.verbose) put_totals(json, result.totals, result.seen_seconds, how.price);
  json.end_object();
  json.member("from", moment_text(result.trace, result.first)).member("to", moment_text(result.trace, result.last));
  json.member("gpus", result.gpus.size()).member("samples", result.samples);
  json.member("seen_hours", hours(result.seen_seconds)).member("interval_seconds", to_seconds(result.intervals.usual));
  json.member("long_interval_seconds", to_seconds(result.intervals.longer));
  json.member("readings", result.means ? "mean" : "moment");
  if (how.price) json.member("price_per_hour", *how.price);
  if (how.verbose) json.member("regret_seconds", to_seconds(result.regret));
  json.member("bad_rows", result.trace.bad_rows).member("duplicates", result.trace.duplicates);
  json.member("out_of_order", result.trace.out_of_order).member("bytes", result.trace.bytes);
  json.key("per_gpu").begin_array();
  for (const GpuResult& gpu : result.gpus) put_gpu(json, result, gpu, how);
  json.end_array();
  if (how.verbose) {
    json.key("events").begin_array();
    for (const Firing& firing : result.firings) put_event(json, result, firing);
    json.end_array();
  }
  put_hurt(json, result);
  json.member("ends_rule", printable(result.ends_rule)).key("ends").begin_array();
  for (std::size_t i = 0; i < std::min(how.most_ends, result.ends.size()); ++i) put_end(json, result, result.ends[i]);
  json.end_array();
  if (!result.axes.empty()) put_sweep(json, result, how);
  json.end_object();
}

void put_axes(JsonWriter& json, const std::vector<Axis>& axes) {
  json.key("axes").begin_array();
  for (const Axis& axis : axes) {
    json.begin_object().member("name", axis.name).key("values").begin_array();
    for (const std::string& value : axis.values) json.value(printable(value));
    json.end_array().end_object();
  }
  json.end_array();
}

std::string to_json(const ReplayResult& result, const OutputOptions& how) {
  JsonWriter json;
  put_result(json, result, how);
  return json.take() + '\n';
}

namespace {

std::string firings_csv(const ReplayResult& result) {
  std::string out = "gpu,time,idle_seconds,after_seconds,ended,came_back,regretted\n";
  for (const Firing& firing : result.firings)
    out += fmt::format("{},{},{},{},{},{:d},{:d}\n", csv_text(gpu_text(result, firing.gpu)),
                       moment_text(result.trace, firing.at), to_seconds(firing.idle), to_seconds(firing.after),
                       ending_text(firing.ending), firing.ending == StretchEnd::came_back, firing.regretted);
  return out;
}

std::string ends_csv(const ReplayResult& result) {
  std::string out =
      "gpu,time,then,back_after_seconds,followed_seconds,work_lost_hours,freed_hours,user,job,command,host\n";
  for (const End& end : result.ends) {
    const bool told = end.holder > trace::kNobody;
    const trace::RecordedJob nobody;
    const trace::RecordedJob& holder = told ? result.trace.holders[end.holder] : nobody;
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{}\n", csv_text(gpu_text(result, end.gpu)),
                       moment_text(result.trace, end.at), leaving_text(end.how),
                       end.back ? fmt::format("{}", to_seconds(*end.back - end.at)) : "", to_seconds(end.followed),
                       hours(end.lost_seconds), hours(end.freed_seconds), csv_text(holder.user_text()),
                       csv_text(holder.job), csv_text(holder.command), csv_text(holder.host));
  }
  return out;
}

}  // namespace

std::string to_csv(const ReplayResult& result, const OutputOptions& how) {
  if (result.axes.empty()) return how.verbose ? firings_csv(result) : ends_csv(result);
  const auto fields_of = [&](const Totals& totals) {
    Fields fields = end_fields(totals);
    if (how.verbose) {
      const Fields more = {{"firings", totals.firings},
                           {"came_back", totals.came_back},
                           {"regretted", totals.regretted},
                           {"idle_hours", hours(totals.idle_seconds)},
                           {"reclaimed_hours", hours(totals.reclaimed_seconds)}};
      fields.insert(fields.end(), more.begin(), more.end());
    }
    if (how.price) fields.emplace_back("freed_cost", hours(totals.freed_seconds()) * *how.price);
    return fields;
  };
  std::string out;
  for (const Axis& axis : result.axes) out += axis.name + ",";
  out += csv_names(fields_of(result.totals)) + "recommended,rule\n";
  for (const SweepRow& row : result.sweep) {
    for (const std::string& value : row.values) out += csv_text(value) + ",";
    out += csv_values(fields_of(row.totals)) + fmt::format("{:d},{}\n", row.recommended, csv_text(row.rule));
  }
  return out;
}

}  // namespace lull::replay
