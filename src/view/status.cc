#include "view/status.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <span>
#include <utility>

#include "base/calendar.h"
#include "base/json_writer.h"
#include "base/units.h"
#include "rule/reason.h"

namespace lull {
namespace {

constexpr std::size_t kCommandWidth = 17;  // a command line that is longer gives way before any other column
constexpr double kIdlePercent = 5;         // below it a held GPU is shown as one that does nothing

// A bar of `width` cells; an eighth of a cell is seen where the screen has UTF-8.
std::string bar(double percent, std::size_t width, const Screen& screen) {
  const double share = std::clamp(percent, 0.0, 100.0) / 100;
  if (!screen.utf8) {
    const auto full = static_cast<std::size_t>(std::lround(share * static_cast<double>(width)));
    return std::string(full, '#') + std::string(width - full, '.');
  }
  constexpr std::string_view kEighths[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const auto eighths = static_cast<std::size_t>(std::lround(share * static_cast<double>(width) * 8));
  std::string text;
  for (std::size_t i = 0; i < eighths / 8; ++i) text += "█";
  text += kEighths[eighths % 8];
  const std::size_t used = eighths / 8 + (eighths % 8 != 0 ? 1 : 0);
  for (std::size_t i = used; i < width; ++i) text += "░";
  return text;
}

std::string number(double value, std::string_view format, std::string_view otherwise = "-") {
  return std::isnan(value) ? std::string(otherwise) : fmt::format(fmt::runtime(format), value);
}

// "carol 77 for 3h12m: python train.py"
std::string lease_text(const LeaseView& lease, WallTime now) {
  const bool known = lease.since && *lease.since <= now;
  return fmt::format(
      "{} {}{}: {}", printable(lease.user), lease.pid,
      known ? " for " + format_duration(std::chrono::floor<std::chrono::seconds>(now - *lease.since)) : "",
      printable(lease.command));
}

// Of several who share it all are named first: the end may be cut.
std::string leases_text(const std::vector<LeaseView>& leases, WallTime now) {
  if (leases.empty()) return {};
  if (leases.size() == 1) return lease_text(leases.front(), now);
  std::string text;
  for (const LeaseView& lease : leases) text += (text.empty() ? "" : ", ") + printable(lease.user);
  for (const LeaseView& lease : leases) text += "; " + lease_text(lease, now);
  return text;
}

// "ada,bob"; of more than fit into a column the number: "ada,bob,+3".
std::string names_text(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 24;
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0 && display_width(text) + 1 + display_width(names[i]) > kMost)
      return fmt::format("{},+{}", text, names.size() - i);
    text += (i == 0 ? "" : ",") + names[i];
  }
  return text;
}

// Whose the GPU is, where there is no room to say what it is leased for: "ada (leased)", "leased: ada".
std::string owner_and_lease(const std::vector<std::string>& owners, const std::vector<LeaseView>& leases) {
  std::vector<std::string> holders;
  for (const LeaseView& lease : leases)
    if (const std::string user = printable(lease.user); std::ranges::find(holders, user) == holders.end())
      holders.push_back(user);
  if (holders.empty()) return names_text(owners);
  if (owners.empty()) return "leased: " + names_text(holders);
  const bool of_them = std::ranges::all_of(
      holders, [&](const std::string& one) { return std::ranges::find(owners, one) != owners.end(); });
  return names_text(owners) + (of_them ? " (leased)" : " (leased: " + names_text(holders) + ")");
}

// All but the maker, who is the same on every row.
std::string name_text(const Device& device) {
  constexpr std::string_view kMaker = "NVIDIA ";
  std::string_view name = device.name;
  if (name.starts_with(kMaker) && name.size() > kMaker.size()) name.remove_prefix(kMaker.size());
  return name.empty() ? "?" : printable(name);
}

std::string memory_text(const Reading& reading) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const double used = reading[Metric::mem_used] / kGiB;
  const double total = reading[Metric::mem_total] / kGiB;
  if (std::isnan(used) && std::isnan(total)) return "-";
  return fmt::format("{}{} / {} GiB", reading.memory_estimated ? "~" : "", number(used, "{:.1f}", "?"),
                     number(total, "{:.1f}", "?"));
}

std::string power_text(const Reading& reading) {
  const double watts = reading[Metric::power];
  const double limit = reading[Metric::power_limit];
  if (std::isnan(watts)) return "-";
  return std::isnan(limit) ? fmt::format("{:.0f} W", watts) : fmt::format("{:.0f} / {:.0f} W", watts, limit);
}

// The newest at the right, and as wide from the first sample on as it will be.
std::string history_text(const std::vector<float>& history, const Screen& screen) {
  if (history.empty()) return {};
  const std::size_t width = screen.width < 110 ? 8 : 20;
  const std::size_t from = history.size() > width ? history.size() - width : 0;
  return pad(sparkline(std::span(history).subspan(from), width, screen.utf8, 100), width, Align::right, screen.utf8);
}

// A process of another container may use it: no process is visible, but memory is in use, or that is unknown.
bool may_be_hidden(const Reading& reading) {
  return reading.processes_hidden && (reading.memory_estimated || !(reading[Metric::mem_used] <= kEmptyCard));
}

// "≥19s" where only that much of it was seen.
std::string idle_text(const StatusExtra& extra, bool utf8) {
  if (!extra.idle_for) return {};
  const std::string text = format_duration(std::chrono::floor<std::chrono::seconds>(*extra.idle_for));
  return (extra.idle_for_longer ? utf8 ? "≥" : ">=" : "") + text;
}

// "ada", or "ada's filler" of a process that gives way.
std::string owner_text(const GpuProcess& process, const StatusExtra& extra) {
  const std::string owner = process.info != nullptr ? printable(process.info->user) : "?";
  return extra.fillers.contains(process.pid) ? owner + "'s filler" : owner;
}

// The processes' users, each once, in the order of their share of the memory.
struct Users {
  std::vector<std::string> owners;
  std::string command;
};
Users users_of(const Reading& reading, const StatusExtra& extra) {
  if (reading.asleep) return {};
  if (!reading.processes) return {{"?"}, ""};
  std::vector<GpuProcess> processes = users(reading);
  if (processes.empty() && may_be_hidden(reading)) return {{"?"}, ""};
  std::stable_sort(processes.begin(), processes.end(), [](const GpuProcess& a, const GpuProcess& b) {
    return a.memory_bytes.value_or(0) > b.memory_bytes.value_or(0);
  });
  Users users;
  for (const GpuProcess& process : processes) {
    const std::string owner = owner_text(process, extra);
    if (std::ranges::find(users.owners, owner) == users.owners.end()) users.owners.push_back(owner);
    if (users.command.empty()) users.command = fmt::format("{} {}", process.pid, command_text(process));
  }
  if (processes.size() > 1) users.command = fmt::format("+{} {}", processes.size() - 1, users.command);
  return users;
}

// Another user's: not a fault of the GPU.
bool forbidden(const Device& device, const Reading& reading) {
  return device.absence == Absence::no_permission || reading.device_absence == Absence::no_permission;
}

Tone tone_of(const Reading& reading) {
  const double util = reading[Metric::util];
  if (std::isnan(util)) return Tone::plain;
  if (util >= kIdlePercent) return Tone::good;
  return !users(reading).empty() ? Tone::warn : Tone::dim;  // held and doing nothing is what people look for
}

}  // namespace

std::string device_trouble(const Device& device, const Reading& reading) {
  const Absence absence = device.absence != Absence::none ? device.absence : reading.device_absence;
  if (absence == Absence::none || reading.asleep) return {};  // sleeping is normal
  if (reading.device_absence == Absence::waking) return std::string(to_string(Absence::waking));
  if (absence != Absence::no_answer || reading.unanswered <= Duration::zero()) return std::string(to_string(absence));
  return unanswered_text(reading.unanswered);
}

Use use_of(const Device& device, const Reading& reading, const StatusExtra& extra) {
  const double util = reading[Metric::util];
  const Use unheld = extra.lease_unknown ? Use::unknown : Use::free;
  if (reading.asleep) return !extra.leases.empty() ? Use::held_idle : unheld;
  if (!device_trouble(device, reading).empty()) return Use::unknown;
  const std::vector<GpuProcess> on_it = users(reading);
  const bool held = !on_it.empty();
  const bool filled =
      held && std::ranges::all_of(on_it, [&](const GpuProcess& one) { return extra.fillers.contains(one.pid); });
  if (filled && extra.leases.empty() && !extra.lease_unknown) return Use::filled;
  if (util >= kIdlePercent) return Use::busy;
  const bool nobody = reading.processes && !held && !may_be_hidden(reading);
  // What no driver measures (a MIG device's utilisation, on many cards) is still 0 if no process is there and nothing
  // is in use: `lull pick` agrees.
  const bool empty = nobody && !reading.memory_estimated && reading[Metric::mem_used] <= kEmptyCard;
  if (std::isnan(util) && !(empty && has_no(device, reading, Metric::util))) return Use::unknown;
  if (!extra.leases.empty() || held) return Use::held_idle;
  return nobody ? unheld : Use::unknown;
}

std::string status_summary(const StatusView& view) {
  const std::vector<Device>& devices = view.snapshot.inventory->devices;
  std::array<std::size_t, 5> counts{};
  std::size_t all = 0;
  for (std::size_t row = 0; row < view.devices.size(); ++row) {
    const std::size_t place = view.devices[row];
    const bool cut_up = devices[place].kind == DeviceKind::gpu && place + 1 < devices.size() &&
                        devices[place + 1].kind == DeviceKind::mig;
    if (cut_up) continue;
    const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
    ++counts[static_cast<std::size_t>(use_of(devices[place], view.snapshot.readings[place], extra))];
    ++all;
  }
  constexpr std::array<std::string_view, 5> kUseWords = {"busy", "held idle", "filled", "free", "unknown"};
  std::string text;
  for (std::size_t i = 0; i < counts.size(); ++i)
    if (counts[i] > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", counts[i], kUseWords[i]);
  return fmt::format("{} GPU{}{}{}", all, all == 1 ? "" : "s", text.empty() ? "" : ": ", text);
}

std::vector<std::string> process_table(const StatusView& view, const Screen& screen) {
  enum : std::size_t { gpu, pid, user, type, memory, command };
  std::vector<Column> columns(6);
  columns[gpu] = {"GPU", Align::right, 0, 0, {}};
  columns[pid] = {"PID", Align::right, 0, 0, {}};
  columns[user] = {"USER", Align::left, 0, 6, {}};
  columns[type] = {"TYPE", Align::left, 2, 0, {}};
  columns[memory] = {"MEMORY", Align::right, 1, 0, {}};
  columns[command] = {"COMMAND", Align::left, 0, 8, {}, kCommandWidth};
  for (std::size_t row = 0; row < view.devices.size(); ++row) {
    const std::size_t place = view.devices[row];
    const Reading& reading = view.snapshot.readings[place];
    const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
    for (const GpuProcess& process : reading.processes.value_or(std::vector<GpuProcess>{})) {
      const auto put = [&](std::size_t column, const std::string& text, Tone how = Tone::plain) {
        columns[column].cells.push_back({for_screen(text, screen), how});
      };
      put(gpu, view.snapshot.inventory->devices[place].label(), Tone::strong);
      put(pid, std::to_string(process.pid));
      put(user, owner_text(process, extra));
      put(type, process.mps_server                    ? "MPS"
                : process.compute && process.graphics ? "C+G"
                : process.graphics                    ? "G"
                                                      : "C");
      put(memory, process.memory_bytes ? format_size(static_cast<double>(*process.memory_bytes)) : "-");
      put(command, command_text(process));
    }
  }
  return layout(columns, {}, screen);
}

namespace {

enum StatusColumn : std::size_t {
  gpu,
  vendor,
  name,
  util_bar,
  history,
  util,
  memory,
  power,
  temp,
  idle,
  owner,
  command,
  lease
};

// Who wastes what is what people look for: for how long, who and with what stay longest.
std::vector<Column> status_columns() {
  std::vector<Column> columns(13);
  columns[gpu] = {"GPU", Align::right, 0, 0, {}};
  columns[vendor] = {"VENDOR", Align::left, 10, 0, {}};
  columns[name] = {"NAME", Align::left, 5, 10, {}, 14};
  columns[util_bar] = {"", Align::left, 9, 0, {}};
  columns[history] = {"", Align::left, 4, 0, {}};
  columns[util] = {"UTIL", Align::right, 0, 0, {}};
  columns[memory] = {"MEMORY", Align::right, 3, 0, {}};
  columns[power] = {"POWER", Align::right, 6, 0, {}};
  columns[temp] = {"TEMP", Align::right, 7, 0, {}};
  columns[idle] = {"IDLE FOR", Align::right, 1, 0, {}};
  columns[owner] = {"OWNER", Align::left, 0, 0, {}};  // all who share it, whatever else goes
  columns[command] = {"COMMAND", Align::left, 2, 12, {}, kCommandWidth};
  columns[lease] = {"LEASED TO", Align::left, 8, 12, {}, 16};
  return columns;
}

bool any_lease(const StatusView& view) {
  return std::ranges::any_of(view.extras, [](const StatusExtra& extra) { return !extra.leases.empty(); });
}

// With a column for leases, or with them beside the owners.
std::vector<std::string> table_of(const StatusView& view, bool lease_column, const Screen& screen) {
  constexpr std::size_t kBar = 10;
  std::vector<Column> columns = status_columns();
  std::vector<RowText> spans;
  bool any_idle = false;
  bool any_history = false;
  for (std::size_t row = 0; row < view.devices.size(); ++row) {
    const Device& device = view.snapshot.inventory->devices[view.devices[row]];
    const Reading& reading = view.snapshot.readings[view.devices[row]];
    const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
    const Tone tone = tone_of(reading);
    const Users users = users_of(reading, extra);
    const double percent = reading[Metric::util];
    const auto put = [&](std::size_t column, const std::string& text, Tone how = Tone::plain) {
      columns[column].cells.push_back({for_screen(text, screen), how});
    };
    put(gpu, (view.marked == row ? ">" : "") + device.label(), Tone::strong);
    put(vendor, device.vendor_label());
    put(name, name_text(device));
    // Bars are drawn for this screen already; the letters must not be replaced again.
    const bool drawn = !std::isnan(percent) && !reading.asleep;
    columns[util_bar].cells.push_back({drawn ? bar(percent, kBar, screen) : "", tone});
    columns[history].cells.push_back({history_text(extra.history, screen), tone});
    put(util, reading.asleep ? "asleep" : number(percent, "{:.0f} %"), tone);
    put(memory, memory_text(reading));
    put(power, power_text(reading));
    put(temp, number(reading[Metric::temp], "{:.0f} C"));
    put(idle, idle_text(extra, screen.utf8));
    put(owner, lease_column ? names_text(users.owners) : owner_and_lease(users.owners, extra.leases));
    put(command, users.command);
    put(lease, leases_text(extra.leases, view.snapshot.wall));
    any_idle |= extra.idle_for.has_value();
    any_history |= !extra.history.empty();
    if (const std::string trouble = device_trouble(device, reading); !trouble.empty())
      spans.push_back(
          {row, util_bar, {for_screen(trouble, screen), forbidden(device, reading) ? Tone::dim : Tone::bad}});
  }
  // From the back, so that the numbers of those before stay what they are.
  if (!lease_column) columns.erase(columns.begin() + lease);
  if (!any_idle) columns.erase(columns.begin() + idle);
  if (!any_history) columns.erase(columns.begin() + history);
  if (!view.snapshot.inventory->several_vendors()) {
    columns.erase(columns.begin() + vendor);
    for (RowText& span : spans) --span.from_column;
  }
  return layout(columns, spans, screen);
}

}  // namespace

std::vector<std::string> status_table(const StatusView& view, const Screen& screen) {
  if (any_lease(view)) {
    std::vector<std::string> lines = table_of(view, true, screen);
    if (lines.front().contains("LEASED TO")) return lines;
  }
  return table_of(view, false, screen);
}

std::string StatusPictures::next(const StatusView& view, const Screen& screen) {
  switch (format_) {
    case StatusFormat::json: return status_json(view, every_ ? -1 : 2) + "\n";
    case StatusFormat::csv: return (std::exchange(headed_, true) ? "" : status_csv_header()) + status_csv(view);
    case StatusFormat::table: break;
  }
  std::vector<std::string> lines = status_table(view, screen);
  if (view.devices.empty()) lines = {"no GPU"};
  if (processes_ && !view.devices.empty()) {
    lines.emplace_back();
    std::ranges::copy(process_table(view, screen), std::back_inserter(lines));
  }
  const std::string summary = view.devices.size() > 1 ? wrapped(status_summary(view), screen.width, 2) : "";
  for (const std::string_view part : split(summary, '\n'))
    if (!part.empty()) lines.push_back(fit(part, screen.width, screen.utf8));
  std::string text = every_ ? format_rfc3339(view.snapshot.wall) + "\n" : "";
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

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
    for (const GpuProcess& process : users(reading)) {
      const std::string owner = process.info == nullptr ? "?" : process.info->user;
      if ((" " + owners + " ").find(" " + owner + " ") == std::string::npos)
        owners += (owners.empty() ? "" : " ") + owner;
    }
    const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
    const double idle = extra.idle_for ? std::chrono::duration<double>(*extra.idle_for).count() : kUnknown;
    text += fmt::format(",{},{},{}\n", number(idle), cell(owners), cell(device_trouble(device, reading)));
  }
  return text;
}

namespace {

// A mean has no more to say than thousandths.
double rounded(double value) { return std::round(value * 1000) / 1000; }
std::optional<double> rounded(const std::optional<double>& value) {
  return value ? std::optional(rounded(*value)) : std::nullopt;
}

std::string_view basis(Basis basis) {
  switch (basis) {
    case Basis::mean: return "mean";
    case Basis::instant: return "instant";
    case Basis::moments: return "moments";
    case Basis::unknown: break;
  }
  return "";
}

std::optional<std::string> time_text(const std::optional<WallTime>& time) {
  return time ? std::optional(format_rfc3339(*time)) : std::nullopt;
}

void put_process(JsonWriter& json, const GpuProcess& process, bool filler) {
  json.begin_object().member("pid", process.pid);
  json.member("type", process.compute && process.graphics ? "C+G" : process.graphics ? "G" : "C");
  json.member("mem_used_bytes", process.memory_bytes);
  json.member("mps_server", process.mps_server);
  json.member("proof", to_string(process.proof)).member("filler", filler);
  if (const ProcessInfo* info = process.info.get(); info != nullptr) {
    json.member("user", info->user).member("name", info->name).member("command", info->command_line());
    json.member("started", time_text(info->started)).member("parent_pid", info->parent);
    json.member_or_null("cgroup", info->cgroup).member_or_null("container", info->container);
  } else {
    for (const char* name : {"user", "name", "command", "started", "parent_pid", "cgroup", "container"})
      json.key(name).null();
  }
  json.end_object();
}

void put_metrics(JsonWriter& json, const Reading& reading, bool lease_unknown) {
  const auto asked = [&](const MetricInfo& row) {
    return row.of == Of::gpu && reading.why_missing(row.metric) != Absence::not_asked;
  };
  for (const MetricInfo& row : kMetricTable)
    if (asked(row)) json.member(row.field, rounded(reading[row.metric]));
  json.member_or_null("util_basis", basis(reading.util_basis));
  json.member("util_coverage",
              reading.util_basis == Basis::mean ? std::optional(rounded(reading.util_coverage)) : std::nullopt);
  json.member_or_null("power_basis", basis(reading.power_basis));
  json.member("energy_joules", rounded(reading.energy_joules));
  json.member("mem_clock_mhz", rounded(reading.mem_clock_mhz));
  if (reading.throttle_reasons) {
    json.member("throttling", is_throttling(*reading.throttle_reasons));
    json.key("throttle_reasons").begin_array();
    for (const auto& word : throttle_text(*reading.throttle_reasons)) json.value(word);
    json.end_array();
  } else {
    json.key("throttling").null().key("throttle_reasons").null();
  }
  json.member("mig_mode", reading.mig_mode);
  json.member("asleep", reading.asleep);
  json.member("display_active", reading.display_active);
  json.member("memory_estimated", reading.memory_estimated);
  json.member("processes_hidden", reading.processes_hidden);
  json.key("unknown").begin_object();
  for (const MetricInfo& row : kMetricTable)
    if (const Absence why = reading.why_missing(row.metric); asked(row) && why != Absence::none)
      json.member(row.field, to_string(why));
  if (lease_unknown) json.member("lease", "leases cannot be read");
  json.end_object();
}

JsonWriter& put_lease(JsonWriter& json, const LeaseView& lease) {
  json.begin_object().member("user", lease.user).member("pid", lease.pid);
  return json.member("command", lease.command).member("since", time_text(lease.since)).end_object();
}

void put_gpu(JsonWriter& json, const StatusView& view, std::size_t row) {
  const Device& device = view.snapshot.inventory->devices[view.devices[row]];
  const Reading& reading = view.snapshot.readings[view.devices[row]];
  const bool mig = device.kind == DeviceKind::mig;
  json.begin_object().member("index", device.index).member("kind", mig ? "mig" : "gpu");
  json.member("mig_index", mig ? std::optional(device.mig_index) : std::nullopt);
  json.member("vendor", to_string(device.vendor)).member("vendor_index", device.vendor_index);
  json.member_or_null("uuid", device.uuid).member_or_null("name", device.name).member_or_null("pci", device.pci);
  json.member_or_null("error", device_trouble(device, reading));
  const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
  put_metrics(json, reading, extra.lease_unknown);
  json.key("processes");
  if (reading.processes) {
    json.begin_array();
    for (const GpuProcess& process : *reading.processes)
      put_process(json, process, extra.fillers.contains(process.pid));
    json.end_array();
  } else {
    json.null();
  }
  json.member("idle_seconds", extra.idle_for
                                  ? std::optional(rounded(std::chrono::duration<double>(*extra.idle_for).count()))
                                  : std::nullopt);
  json.member("idle_at_least", extra.idle_for ? std::optional(extra.idle_for_longer) : std::nullopt);
  json.key("lease");
  extra.leases.empty() ? json.null() : put_lease(json, extra.leases.front());
  json.key("leases").begin_array();
  for (const LeaseView& lease : extra.leases) put_lease(json, lease);
  json.end_array().end_object();
}

}  // namespace

std::string status_json(const StatusView& view, int indent) {
  JsonWriter json(indent);
  json.begin_object().member("time", format_rfc3339(view.snapshot.wall));
  json.member_or_null("driver_version", view.snapshot.inventory->driver_version);
  json.key("gpus").begin_array();
  for (std::size_t row = 0; row < view.devices.size(); ++row) put_gpu(json, view, row);
  return json.end_array().end_object().take();
}

}  // namespace lull
