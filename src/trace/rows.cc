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

void append_json_text(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20)
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
    else if (c == '"' || c == '\\')
      (out += '\\') += c;
    else
      out += c;
  }
  out += '"';
}

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
  out += "{\"time\":\"" + time + "\",\"gpu\":";
  append_json_text(out, device.label());
  out += ",\"uuid\":";
  if (device.uuid.empty())
    out += "null";
  else
    append_json_text(out, device.uuid);
  for (const Metric metric : metrics) {
    fmt::format_to(std::back_inserter(out), ",\"{}\":", info(metric).field);
    if (std::isfinite(reading[metric]))
      append_number(out, reading[metric]);
    else
      out += "null";
  }
  out += "}\n";
}

}  // namespace lull::trace
