#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "base/text.h"
#include "base/units.h"
#include "gpu/empty_card.h"
#include "rule/reason.h"
#include "view/holders.h"
#include "view/status.h"

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

// Whose the GPU is, where there is no room to say what it is leased for: "ada (leased)", "leased: ada".
std::string owner_and_lease(const std::string& owners, const std::optional<LeaseView>& lease) {
  if (!lease) return owners;
  const std::string holder = printable(lease->user);
  if (owners.empty()) return "leased: " + holder;
  const auto all = split(owners, ',');
  const bool one_of_them = std::ranges::find(all, holder) != all.end();
  return owners + (one_of_them ? " (leased)" : " (leased: " + holder + ")");
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

// Somebody of another container may be on it: no process is seen, but memory is in use, or that is not known.
bool may_be_hidden(const Reading& reading) {
  return reading.processes_hidden && (reading.memory_estimated || !(reading[Metric::mem_used] <= kEmptyCard));
}

// "≥19s" where only that much of it was seen.
std::string idle_text(const StatusExtra& extra, bool utf8) {
  if (!extra.idle_for) return {};
  const std::string text = format_duration(std::chrono::floor<std::chrono::seconds>(*extra.idle_for));
  return (extra.idle_for_longer ? utf8 ? "≥" : ">=" : "") + text;
}

// The tenants' users, each once, in the order of their share of the memory.
struct Users {
  std::string owners;
  std::string command;
};
Users users_of(const Reading& reading, const Snapshot& snapshot) {
  if (reading.asleep) return {};
  if (!reading.tenants) return {"?", ""};
  std::vector<Tenant> tenants = holders(reading);
  if (tenants.empty() && may_be_hidden(reading)) return {"?", ""};
  std::stable_sort(tenants.begin(), tenants.end(), [](const Tenant& a, const Tenant& b) {
    return a.memory_bytes.value_or(0) > b.memory_bytes.value_or(0);
  });
  std::vector<std::string> seen;
  Users users;
  for (const Tenant& tenant : tenants) {
    const ProcessInfo* process = known_process(tenant, snapshot);
    const std::string owner = process != nullptr ? printable(process->user) : "?";
    if (std::find(seen.begin(), seen.end(), owner) == seen.end()) {
      seen.push_back(owner);
      users.owners += (users.owners.empty() ? "" : ",") + owner;
    }
    if (users.command.empty())
      users.command = process != nullptr ? fmt::format("{} {}", tenant.pid, printable(process->command_line()))
                                         : fmt::format("{} (not visible from here)", tenant.pid);
  }
  if (tenants.size() > 1) users.command = fmt::format("+{} {}", tenants.size() - 1, users.command);
  return users;
}

// Somebody else's: that is no fault of the GPU.
bool forbidden(const Device& device, const Reading& reading) {
  return device.absence == Absence::no_permission || reading.device_absence == Absence::no_permission;
}

Tone tone_of(const Reading& reading) {
  const double util = reading[Metric::util];
  if (std::isnan(util)) return Tone::plain;
  if (util >= kIdlePercent) return Tone::good;
  return !holders(reading).empty() ? Tone::warn : Tone::dim;  // held and doing nothing is what people look for
}

}  // namespace

std::string device_trouble(const Device& device, const Reading& reading) {
  const Absence absence = device.absence != Absence::none ? device.absence : reading.device_absence;
  if (absence == Absence::none || reading.asleep) return {};  // sleeping is no trouble
  if (reading.device_absence == Absence::waking) return std::string(words(Absence::waking));
  if (absence != Absence::no_answer || reading.unanswered <= Duration::zero()) return std::string(words(absence));
  const auto whole = std::chrono::floor<std::chrono::seconds>(reading.unanswered);
  return "driver has not answered for " + format_duration(whole.count() > 0 ? Duration(whole) : reading.unanswered);
}

Use use_of(const Device& device, const Reading& reading, const StatusExtra& extra) {
  const double util = reading[Metric::util];
  if (reading.asleep) return extra.lease ? Use::held_idle : Use::free;
  if (!device_trouble(device, reading).empty()) return Use::unknown;
  if (util >= kIdlePercent) return Use::busy;
  const bool held = !holders(reading).empty();
  const bool nobody = reading.tenants && !held && !may_be_hidden(reading);
  // What no driver measures (a MIG device's utilisation) is still 0 where nobody is and nothing is in use: so says
  // `lull pick` too.
  const bool empty = nobody && !reading.memory_estimated && reading[Metric::mem_used] <= kEmptyCard;
  if (std::isnan(util) && !(empty && reading.why_missing(Metric::util) == Absence::not_supported)) return Use::unknown;
  if (extra.lease || held) return Use::held_idle;
  return nobody ? Use::free : Use::unknown;
}

std::string status_summary(const StatusView& view) {
  const std::vector<Device>& devices = view.snapshot.inventory->devices;
  std::array<std::size_t, 4> counts{};
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
  constexpr std::array<std::string_view, 4> kUseWords = {"busy", "held idle", "free", "unknown"};
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
  for (const std::size_t place : view.devices) {
    const Reading& reading = view.snapshot.readings[place];
    for (const Tenant& tenant : reading.tenants.value_or(std::vector<Tenant>{})) {
      const ProcessInfo* process = known_process(tenant, view.snapshot);
      const auto put = [&](std::size_t column, const std::string& text, Tone how = Tone::plain) {
        columns[column].cells.push_back({for_screen(text, screen), how});
      };
      put(gpu, view.snapshot.inventory->devices[place].label(), Tone::strong);
      put(pid, std::to_string(tenant.pid));
      put(user, process != nullptr ? printable(process->user) : "?");
      put(type, tenant.mps_server ? "MPS" : tenant.compute && tenant.graphics ? "C+G" : tenant.graphics ? "G" : "C");
      put(memory, tenant.memory_bytes ? format_size(static_cast<double>(*tenant.memory_bytes)) : "-");
      put(command, process != nullptr ? printable(process->command_line()) : "(not visible from here)");
    }
  }
  return layout(columns, {}, screen);
}

namespace {

enum StatusColumn : std::size_t {
  gpu,
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
  std::vector<Column> columns(12);
  columns[gpu] = {"GPU", Align::right, 0, 0, {}};
  columns[name] = {"NAME", Align::left, 5, 10, {}, 14};
  columns[util_bar] = {"", Align::left, 9, 0, {}};
  columns[history] = {"", Align::left, 4, 0, {}};
  columns[util] = {"UTIL", Align::right, 0, 0, {}};
  columns[memory] = {"MEMORY", Align::right, 3, 0, {}};
  columns[power] = {"POWER", Align::right, 6, 0, {}};
  columns[temp] = {"TEMP", Align::right, 7, 0, {}};
  columns[idle] = {"IDLE FOR", Align::right, 1, 0, {}};
  columns[owner] = {"OWNER", Align::left, 0, 5, {}, 12};
  columns[command] = {"COMMAND", Align::left, 2, 12, {}, kCommandWidth};
  columns[lease] = {"LEASED TO", Align::left, 8, 12, {}, 16};
  return columns;
}

bool any_lease(const StatusView& view) {
  return std::ranges::any_of(view.extras, [](const StatusExtra& extra) { return extra.lease.has_value(); });
}

// With a column for leases, or with them beside the owners.
std::vector<std::string> table_of(const StatusView& view, bool lease_column, const Screen& screen) {
  constexpr std::size_t kBar = 10;
  std::vector<Column> columns = status_columns();
  if (!lease_column && any_lease(view)) columns[owner].shrink_to = columns[owner].enough;  // "leased: ada" at least
  std::vector<RowText> spans;
  bool any_idle = false;
  bool any_history = false;
  for (std::size_t row = 0; row < view.devices.size(); ++row) {
    const Device& device = view.snapshot.inventory->devices[view.devices[row]];
    const Reading& reading = view.snapshot.readings[view.devices[row]];
    const StatusExtra extra = row < view.extras.size() ? view.extras[row] : StatusExtra{};
    const Tone tone = tone_of(reading);
    const Users users = users_of(reading, view.snapshot);
    const double percent = reading[Metric::util];
    const auto put = [&](std::size_t column, const std::string& text, Tone how = Tone::plain) {
      columns[column].cells.push_back({for_screen(text, screen), how});
    };
    put(gpu, (view.marked == row ? ">" : "") + device.label(), Tone::strong);
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
    put(owner, lease_column ? users.owners : owner_and_lease(users.owners, extra.lease));
    put(command, users.command);
    put(lease, extra.lease ? lease_text(*extra.lease, view.snapshot.wall) : "");
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

}  // namespace lull
