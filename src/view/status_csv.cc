#include <fmt/format.h>

#include <cmath>

#include "base/calendar.h"
#include "view/holders.h"
#include "view/status.h"

namespace lull {
namespace {

// Quoted where RFC 4180 asks for it; line breaks inside a cell become blanks, since
// most readers of CSV in this field go line by line.
std::string cell(std::string_view text) {
  std::string out;
  bool quote = false;
  for (const char c : text) {
    quote |= c == ',' || c == '"';
    if (c == '"') out += '"';
    out += c == '\n' || c == '\r' ? ' ' : c;
  }
  return quote ? '"' + out + '"' : out;
}

// The shortest text that reads back as the same number; an unknown is an empty cell.
std::string number(double value) { return std::isnan(value) ? std::string() : fmt::format("{}", value); }

constexpr Metric kColumns[] = {Metric::util,      Metric::mem_util, Metric::mem_used,    Metric::mem_free,
                               Metric::mem_total, Metric::power,    Metric::power_limit, Metric::temp,
                               Metric::clock,     Metric::pstate,   Metric::fan,         Metric::procs};

}  // namespace

std::string status_csv_header() {
  std::string line = "time,gpu,uuid,name";
  for (const Metric metric : kColumns) line += "," + std::string(info(metric).field);
  return line + ",idle_seconds,owners,error\n";
}

std::string status_csv(const StatusView& view) {
  std::string text;
  for (std::size_t row = 0; row < view.devices.size(); ++row) {
    const Device& device = view.snapshot.inventory->devices[view.devices[row]];
    const Reading& reading = view.snapshot.readings[view.devices[row]];
    text += fmt::format("{},{},{},{}", format_rfc3339(view.snapshot.wall), device.label(), cell(device.uuid),
                        cell(device.name));
    for (const Metric metric : kColumns) text += "," + number(reading[metric]);
    std::string owners;
    for (const Tenant& tenant : holders(reading)) {
      const ProcessInfo* process = known_process(tenant, view.snapshot);
      const std::string owner = process == nullptr ? "?" : process->user;
      if ((" " + owners + " ").find(" " + owner + " ") == std::string::npos)
        owners += (owners.empty() ? "" : " ") + owner;
    }
    const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
    const double idle = extra.idle_for ? std::chrono::duration<double>(*extra.idle_for).count() : kUnknown;
    text += fmt::format(",{},{},{}\n", number(idle), cell(owners), cell(device_trouble(device, reading)));
  }
  return text;
}

}  // namespace lull
