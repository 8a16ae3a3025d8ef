#include "trace/rows.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

#include "trace/time.h"

namespace lull::trace {
namespace {

void append_number(std::string& out, double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) {
    fmt::format_to(std::back_inserter(out), "{:.0f}", value == 0 ? 0.0 : value);  // never -0
    return;
  }
  fmt::format_to(std::back_inserter(out), "{:.3f}", value);  // a mean has no more to say
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

}  // namespace

std::string header_line(Format format, std::span<const Metric> metrics) {
  if (format == Format::ndjson) return "";
  std::string line = "time,gpu,uuid";
  for (const Metric metric : metrics) (line += ',') += info(metric).field;
  return line + '\n';
}

void append_row(std::string& out, Format format, WallTime at, const Device& device, const Reading& reading,
                std::span<const Metric> metrics) {
  const std::string time = format_time(at.time_since_epoch().count());
  if (format == Format::csv) {
    out += time;
    out += ',';
    append_csv_text(out, device.label());
    out += ',';
    append_csv_text(out, device.uuid);
    for (const Metric metric : metrics) {
      out += ',';
      if (std::isfinite(reading[metric])) append_number(out, reading[metric]);
    }
    out += '\n';
    return;
  }
  JsonWriter json;
  json.begin_object().member("time", time).member("gpu", device.label()).member_or_null("uuid", device.uuid);
  std::string number;
  for (const Metric metric : metrics) {
    number.clear();
    if (std::isfinite(reading[metric])) append_number(number, reading[metric]);
    json.key(info(metric).field).raw(number.empty() ? "null" : number);
  }
  out += json.end_object().take();
  out += '\n';
}

}  // namespace lull::trace
