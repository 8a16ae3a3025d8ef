#include "replay/output.h"

#include <fmt/format.h>

#include <iterator>

#include "base/text.h"
#include "base/units.h"
#include "trace/rows.h"
#include "trace/time.h"

namespace lull::replay {
namespace {

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

std::string quoted(std::string_view text) {
  std::string out;
  trace::append_json_text(out, printable(text));
  return out;
}

std::string number(std::optional<double> value) { return value ? fmt::format("{}", *value) : "null"; }

void append_totals(std::string& out, const Totals& totals, double seen_seconds, std::optional<double> price) {
  fmt::format_to(std::back_inserter(out),
                 R"("firings":{},"came_back":{},"came_back_percent":{},"regretted":{},"stretches":{},)"
                 R"("idle_hours":{},"reclaimed_hours":{},"reclaimed_percent":{})",
                 totals.firings, totals.came_back,
                 number(percent(static_cast<double>(totals.came_back), static_cast<double>(totals.firings))),
                 totals.regretted, totals.stretches, hours(totals.idle_seconds), hours(totals.reclaimed_seconds),
                 number(percent(totals.reclaimed_seconds, seen_seconds)));
  if (price)
    fmt::format_to(std::back_inserter(out), R"(,"idle_cost":{},"reclaimed_cost":{})",
                   hours(totals.idle_seconds) * *price, hours(totals.reclaimed_seconds) * *price);
}

void append_event(std::string& out, const ReplayResult& result, const Firing& firing) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"gpu":{},"at":{},"at_seconds":{},"idle_seconds":{},"after_seconds":{},"came_back":{},)"
                 R"("regretted":{},"ended":{}}})",
                 quoted(gpu_text(result, firing.gpu)), quoted(moment_text(result, firing.at)),
                 to_seconds(firing.at.time_since_epoch()), to_seconds(firing.idle), to_seconds(firing.after),
                 firing.ending == StretchEnd::came_back, firing.regretted, quoted(ending_text(firing.ending)));
}

void append_gpu(std::string& out, const ReplayResult& result, const GpuResult& gpu, std::optional<double> price) {
  fmt::format_to(std::back_inserter(out), R"({{"gpu":{},"uuid":{},"samples":{},"seen_hours":{})", quoted(gpu.label),
                 gpu.uuid.empty() ? "null" : quoted(gpu.uuid), gpu.samples, hours(to_seconds(gpu.seen)));
  if (!result.together) {
    out += ',';
    append_totals(out, gpu.totals, to_seconds(gpu.seen), price);
  }
  out += '}';
}

void append_sweep_row(std::string& out, const ReplayResult& result, const SweepRow& row, std::optional<double> price) {
  out += '{';
  for (std::size_t a = 0; a < result.axes.size(); ++a) {
    out += quoted(result.axes[a].name) + ":" + quoted(row.values[a]) + ",";
    if (result.axes[a].name != "for") continue;
    if (const auto span = parse_duration(row.values[a])) out += fmt::format("\"for_seconds\":{},", to_seconds(*span));
  }
  out += fmt::format("\"rule\":{},", quoted(row.rule));
  append_totals(out, row.totals, result.seen_seconds, price);
  out += fmt::format(",\"knee\":{}}}", row.knee);
}

template <class Items, class Append>
void append_list(std::string& out, std::string_view name, const Items& items, Append&& append) {
  out += fmt::format(",\n\"{}\":[", name);
  bool first = true;
  for (const auto& item : items) {
    out += first ? "\n" : ",\n";
    first = false;
    append(item);
  }
  out += ']';
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
  if (result.trace.from_epoch) return trace::format_time(ns, result.trace.zoned);
  return fmt::format("{}s", to_seconds(at.time_since_epoch()));
}

std::string_view ending_text(StretchEnd ending) {
  switch (ending) {
    case StretchEnd::came_back: return "came back";
    case StretchEnd::unknown: return "unknown";
    case StretchEnd::gap: return "gap";
    case StretchEnd::end: return "end of trace";
  }
  return "end of trace";
}

std::string gpu_text(const ReplayResult& result, std::size_t gpu) {
  return gpu < result.gpus.size() ? result.gpus[gpu].label : "all";
}

std::string to_json(const ReplayResult& result, std::optional<double> price) {
  std::string out = "{";
  fmt::format_to(std::back_inserter(out), R"("rule":{},"arm":{},"per":"{}","regret_seconds":{},)", quoted(result.rule),
                 result.arm.empty() ? "null" : quoted(result.arm), result.together ? "all" : "gpu",
                 to_seconds(result.regret));
  fmt::format_to(std::back_inserter(out), "\n\"from\":{},\"to\":{},\"gpus\":{},\"samples\":{},\"seen_hours\":{},",
                 quoted(moment_text(result, result.first)), quoted(moment_text(result, result.last)),
                 result.gpus.size(), result.samples, hours(result.seen_seconds));
  append_totals(out, result.totals, result.seen_seconds, price);
  if (price) out += fmt::format(",\"price_per_hour\":{}", *price);
  fmt::format_to(std::back_inserter(out), ",\n\"bad_rows\":{},\"duplicates\":{},\"out_of_order\":{},\"bytes\":{}",
                 result.trace.bad_rows, result.trace.duplicates, result.trace.out_of_order, result.trace.bytes);
  append_list(out, "per_gpu", result.gpus, [&](const GpuResult& gpu) { append_gpu(out, result, gpu, price); });
  append_list(out, "events", result.firings, [&](const Firing& firing) { append_event(out, result, firing); });
  if (!result.axes.empty())
    append_list(out, "sweep", result.sweep, [&](const SweepRow& row) { append_sweep_row(out, result, row, price); });
  if (result.has_for_axis()) {
    std::vector<SweepRow> knees;
    for (const SweepRow& row : result.sweep)
      if (row.knee) knees.push_back(row);
    append_list(out, "knees", knees, [&](const SweepRow& row) { append_sweep_row(out, result, row, price); });
    if (result.axes.size() == 1) {
      out += ",\n\"knee\":";
      if (knees.empty())
        out += "null";
      else
        append_sweep_row(out, result, knees.front(), price);
    }
  }
  return out + "}\n";
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
  out += "firings,came_back,regretted,idle_hours,reclaimed_hours,reclaimed_percent,";
  if (price) out += "reclaimed_cost,";
  out += "knee,rule\n";
  for (const SweepRow& row : result.sweep) {
    for (const std::string& value : row.values) out += csv_text(value) + ",";
    const Totals& totals = row.totals;
    const auto share = percent(totals.reclaimed_seconds, result.seen_seconds);
    out += fmt::format("{},{},{},{},{},{},", totals.firings, totals.came_back, totals.regretted,
                       hours(totals.idle_seconds), hours(totals.reclaimed_seconds),
                       share ? fmt::format("{}", *share) : "");
    if (price) out += fmt::format("{},", hours(totals.reclaimed_seconds) * *price);
    out += fmt::format("{:d},{}\n", row.knee, csv_text(row.rule));
  }
  return out;
}

}  // namespace lull::replay
