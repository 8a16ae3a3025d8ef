#include "trace/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "trace/time.h"

namespace lull::trace {
namespace {

void append_number(std::string& out, double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    const fmt::format_int whole(static_cast<std::int64_t>(value));  // never -0
    out.append(whole.data(), whole.size());
    return;
  }
  // As few digits as tell the number that rules judge by (a float, gpu/block.h) from its neighbours: of one that was
  // rounded further, replay could say that it is not below 5 where the watcher saw that it is.
  fmt::format_to(std::back_inserter(out), "{}", static_cast<float>(value));
}

void append_csv_text(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;  // a row is a line
  }
  out += '"';
}

// In the order of the columns.
std::array<std::pair<std::string_view, std::string_view>, 6> who_columns(const UserCells& who) {
  return {{{"host", who.host},
           {"users", who.users},
           {"pids", who.pids},
           {"command", who.command},
           {"lease", who.lease},
           {"job", who.job}}};
}

// Where several GPUs have the same, replay would take them for one: then the place.
std::string uuid_of(const Device& device) { return device.shares_uuid ? device.id().value : device.uuid; }

}  // namespace

std::string header_line(const RowLayout& layout) {
  if (layout.format == Format::ndjson) return "";
  std::string line = "time,gpu,uuid";
  for (const Metric metric : layout.metrics) (line += ',') += info(metric).field;
  if (layout.who)
    for (const auto& [name, text] : who_columns(UserCells{})) (line += ',') += name;
  if (layout.architecture) line += ",architecture";
  return line + '\n';
}

void append_row(std::string& out, const RowLayout& layout, const RowFacts& facts) {
  const std::string time = format_time(facts.at.time_since_epoch().count());
  const auto value = [&](Metric metric) { return facts_with(metric, facts.reading, facts.job, facts.machine)[metric]; };
  const std::string architecture(!facts.device.idle_looks_hung          ? ""
                                 : facts.device.vendor == Vendor::intel ? kIntelText
                                                                        : kRdnaText);
  if (layout.format == Format::csv) {
    out += time;
    out += ',';
    append_csv_text(out, facts.device.label());
    out += ',';
    append_csv_text(out, uuid_of(facts.device));
    for (const Metric metric : layout.metrics) {
      out += ',';
      if (std::isfinite(value(metric))) append_number(out, value(metric));
    }
    if (layout.who)
      for (const auto& [name, text] : who_columns(facts.who)) {
        out += ',';
        append_csv_text(out, text);
      }
    if (layout.architecture) (out += ',') += architecture;
    out += '\n';
    return;
  }
  JsonWriter json;
  json.begin_object()
      .member("time", time)
      .member("gpu", facts.device.label())
      .member_or_null("uuid", uuid_of(facts.device));
  std::string number;
  for (const Metric metric : layout.metrics) {
    number.clear();
    if (std::isfinite(value(metric))) append_number(number, value(metric));
    json.key(info(metric).field).raw(number.empty() ? "null" : number);
  }
  if (layout.who)
    for (const auto& [name, text] : who_columns(facts.who)) json.member_or_null(name, text);
  if (layout.architecture) json.member_or_null("architecture", architecture);
  out += json.end_object().take();
  out += '\n';
}

std::string empty_row(const RowLayout& layout) {
  std::string row;
  append_row(row, layout, {WallTime{}, Device{}, Reading{}, Facts{}, Facts{}, UserCells{}});
  return row;
}

Result<> choose_signals(std::string_view text, RowLayout& layout, std::span<const Metric> own) {
  std::vector<Metric>& metrics = layout.metrics;
  if (text.empty()) {
    for (const MetricInfo& row : kMetricTable)
      if (row.of == Of::gpu && is_recorded_unasked(row.metric)) metrics.push_back(row.metric);
    metrics.insert(metrics.end(), own.begin(), own.end());
    layout.who = true;
    return {};
  }
  std::vector<std::string_view> names = {"who"};
  for (const MetricInfo& row : kMetricTable)
    if (row.of == Of::gpu && !is_learned(row.metric)) names.push_back(row.name);
  for (const Metric metric : own) names.push_back(info(metric).name);
  for (const std::string_view part : split(text, ',')) {
    const std::string_view name = trim(part);
    if (name == "who") {
      layout.who = true;
      continue;
    }
    const auto metric = metric_by_name(name);
    if (metric && is_learned(*metric))
      return fail(fmt::format("--signals: '{}' is learned from util and power, in a replay too: record these", name));
    if (!metric || (info(*metric).of != Of::gpu && std::ranges::find(own, *metric) == own.end()))
      return fail(
          fmt::format("--signals: '{}' is not a signal of a GPU{}", printable(name), did_you_mean(name, names)));
    if (std::find(metrics.begin(), metrics.end(), *metric) == metrics.end()) metrics.push_back(*metric);
  }
  return {};
}

}  // namespace lull::trace
