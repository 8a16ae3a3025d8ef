#include "view/leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <set>
#include <tuple>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"

namespace lull {
namespace {

std::string age(const std::optional<WallTime>& since, WallTime now) {
  if (!since) return "?";
  const Duration passed = std::max<Duration>(now - *since, Duration::zero());
  return format_duration(std::chrono::floor<std::chrono::seconds>(passed));
}

std::string label(const LeaseInfo& lease) { return lease.record.label.empty() ? "?" : printable(lease.record.label); }

// "", or how many have that GPU: ", 1 of 3".
std::string share_text(const LeaseInfo& lease, const FolderState& state) {
  const auto holders = std::ranges::count_if(state.leases, [&](const LeaseInfo& one) {
    return one.gpu == lease.gpu && one.record.within == lease.record.within;
  });
  return holders > 1 ? fmt::format(", 1 of {}", holders) : "";
}

// How a lease stands, in a word or two.
std::string state_text(const LeaseInfo& lease) {
  if (!lease.readable) return "may not be read";
  const auto spans = alive(lease.record.holder);
  switch (lease.record.kind) {
    case LeaseKind::collecting: return "collecting";
    case LeaseKind::hold:
      return lease.record.until ? "held until " + format_local(*lease.record.until, "%H:%M:%S") : "held";
    case LeaseKind::process:
    case LeaseKind::job: break;
  }
  return spans == false ? "left behind" : "running";
}

LeasedGpu leased_gpu(const LeaseInfo& lease, const LeasedGpus& gpus) {
  const auto found = gpus.find(lease.gpu);
  return found == gpus.end() ? LeasedGpu{} : found->second;
}

std::string util_text(const LeasedGpu& gpu) { return std::isnan(gpu.util) ? "-" : fmt::format("{:.0f} %", gpu.util); }

std::string idle_text(const LeasedGpu& gpu, bool utf8) {
  if (!gpu.idle_for) return "-";
  const std::string text = format_duration(std::chrono::floor<std::chrono::seconds>(*gpu.idle_for));
  return (gpu.idle_for_longer ? utf8 ? "≥" : ">=" : "") + text;
}

void put_text(JsonWriter& json, std::string_view name, const std::string& text) {
  json.key(name).value_or_null(printable_lines(text));
}

void put_time(JsonWriter& json, std::string_view name, const std::optional<WallTime>& time) {
  json.member(name, time ? std::optional(format_rfc3339(*time)) : std::nullopt);
}

enum LeaseOrder : std::size_t { lease_by_gpu, lease_by_util, lease_by_idle, lease_by_held };
constexpr std::array<std::string_view, 4> kLeaseOrders = {"GPU", "util", "idle for", "how long it is held"};

std::vector<std::string> lease_cells(const LeaseInfo& lease, const LeasesView& view, const Screen& screen) {
  const LeasedGpu seen = leased_gpu(lease, view.gpus);
  return {label(lease),
          printable(user_name(lease.owner)),
          lease.record.holder.pid > 0 ? fmt::format("{}", lease.record.holder.pid) : "?",
          age(lease.record.since, view.now),
          state_text(lease) + share_text(lease, view.state),
          util_text(seen),
          idle_text(seen, screen.utf8),
          printable(lease.record.command),
          printable(lease.gpu)};
}

std::vector<std::string> ticket_cells(const TicketInfo& ticket, const LeasesView& view) {
  const TicketRecord& record = ticket.record;
  const std::string collected =
      record.missing < record.count ? fmt::format(", has {}", record.count - record.missing) : "";
  return {"-",
          printable(user_name(ticket.owner)),
          fmt::format("{}", record.waiter.pid),
          age(record.since, view.now),
          fmt::format("waits for {}{}", record.count, collected),
          "-",
          "-",
          printable(record.command),
          ""};
}

constexpr std::size_t kIdleColumn = 6;
constexpr int kGoesEarly = 6;  // where a column has nothing to say

// How a lease stands is what people come for: a long command gives way first, and everything else before the state.
std::vector<Column> lease_columns() {
  return {
      {"GPU", Align::right, 0, 0, {}},      {"USER", Align::left, 0, 8, {}},        {"PID", Align::right, 5, 0, {}},
      {"FOR", Align::right, 2, 0, {}},      {"STATE", Align::left, 0, 12, {}, 24},  {"UTIL", Align::right, 4, 0, {}},
      {"IDLE FOR", Align::right, 3, 0, {}}, {"COMMAND", Align::left, 1, 8, {}, 12}, {"UUID", Align::left, 7, 0, {}}};
}

}  // namespace

void sort_by_gpu(std::vector<LeaseInfo>& leases) {
  const auto key = [](const LeaseInfo& lease) {
    const auto parts = split(lease.record.label, ':');
    const auto number = [&](std::size_t i) { return i < parts.size() ? to_unsigned(parts[i]).value_or(9999) : 0; };
    return std::tuple(number(0), number(1), lease.file);
  };
  std::sort(leases.begin(), leases.end(), [&](const LeaseInfo& a, const LeaseInfo& b) { return key(a) < key(b); });
}

std::vector<std::string> leases_table(const LeasesView& view, const Screen& screen) {
  return LeaseRows(view).whole_table(screen);
}

std::string leases_summary(const LeasesView& view) {
  std::set<std::string_view> gpus;
  for (const LeaseInfo& lease : view.state.leases) gpus.insert(lease.gpu);
  if (view.empty()) return "no GPU is leased, nobody waits";
  std::string text = gpus.size() == 1 ? "1 GPU is leased" : fmt::format("{} GPUs are leased", gpus.size());
  if (gpus.size() != view.state.leases.size()) text += fmt::format(" to {} holders", view.state.leases.size());
  const std::size_t waiting = view.state.tickets.size();
  return text + (waiting == 0 ? ", nobody waits" : fmt::format(", {} wait{}", waiting, waiting == 1 ? "s" : ""));
}

std::span<const std::string_view> LeaseRows::orders() const { return kLeaseOrders; }

double LeaseRows::weight(std::size_t row, std::size_t order) const {
  const bool waits = row >= view_.state.leases.size();
  const auto seconds = [](Duration time) { return std::chrono::duration<double>(time).count(); };
  if (order == lease_by_held) {
    const auto since = waits ? view_.state.tickets[row - view_.state.leases.size()].record.since
                             : view_.state.leases[row].record.since;
    return since ? std::max(0.0, seconds(view_.now - *since)) : kUnknown;
  }
  if (waits) return kUnknown;
  const LeasedGpu seen = leased_gpu(view_.state.leases[row], view_.gpus);
  if (order == lease_by_util) return seen.util;
  return seen.idle_for ? seconds(*seen.idle_for) : kUnknown;
}

std::string LeaseRows::search_text(std::size_t row) const {
  if (row >= view_.state.leases.size()) {
    const TicketInfo& ticket = view_.state.tickets[row - view_.state.leases.size()];
    return lowered(
        fmt::format("waits {} {} {}", user_name(ticket.owner), ticket.record.waiter.pid, ticket.record.command));
  }
  const LeaseInfo& lease = view_.state.leases[row];
  return lowered(fmt::format("gpu{} {} {} {} {} {}", lease.record.label, lease.gpu, user_name(lease.owner),
                             lease.record.holder.pid, state_text(lease), lease.record.command));
}

std::vector<std::string> LeaseRows::table(std::span<const std::size_t> rows, std::optional<std::size_t> marked,
                                          const Screen& screen) const {
  const FolderState& state = view_.state;
  std::vector<Column> columns = lease_columns();
  const auto any_idle = [&](std::size_t row) {
    return row < state.leases.size() && leased_gpu(state.leases[row], view_.gpus).idle_for.has_value();
  };
  if (std::ranges::none_of(rows, any_idle)) columns[kIdleColumn].give_up = kGoesEarly;
  for (std::size_t place = 0; place < rows.size(); ++place) {
    const std::size_t row = rows[place];
    std::vector<std::string> cells = row < state.leases.size()
                                         ? lease_cells(state.leases[row], view_, screen)
                                         : ticket_cells(state.tickets[row - state.leases.size()], view_);
    if (marked == place) cells.front() = ">" + cells.front();
    for (std::size_t i = 0; i < cells.size(); ++i)
      columns[i].cells.push_back({for_screen(cells[i], screen), Tone::plain});
  }
  return layout(columns, {}, screen);
}

std::vector<std::string> LeaseRows::why(std::size_t row) const {
  const auto time = [](const std::optional<WallTime>& at) { return at ? format_rfc3339(*at) : "?"; };
  if (row >= view_.state.leases.size()) {
    const TicketInfo& ticket = view_.state.tickets[row - view_.state.leases.size()];
    return {
        fmt::format("place {} in the queue, since {}", row - view_.state.leases.size() + 1, time(ticket.record.since)),
        fmt::format("  wants {} of {} GPUs, has {}; priority {}", ticket.record.count,
                    ticket.record.wants.empty() ? "all" : fmt::format("{}", ticket.record.wants.size()),
                    ticket.record.count - std::min(ticket.record.count, ticket.record.missing), ticket.record.priority),
        "  " + printable(ticket.record.command)};
  }
  const LeaseInfo& lease = view_.state.leases[row];
  std::vector<std::string> lines = {
      fmt::format("GPU {}  {}  {}", label(lease), printable(lease.gpu), state_text(lease)),
      fmt::format("  {} (uid {}) has it since {}", printable(user_name(lease.owner)), lease.owner,
                  time(lease.record.since))};
  if (!lease.record.within.empty()) lines.push_back("  within lease " + printable(lease.record.within));
  const LeasedGpu seen = leased_gpu(lease, view_.gpus);
  if (std::isnan(seen.util))
    lines.push_back("  util is unknown: " + (seen.trouble.empty() ? "no such GPU was seen" : seen.trouble));
  lines.push_back("  " + printable(lease.record.command));
  return lines;
}

void put_queue(JsonWriter& json, const FolderState& state) {
  json.begin_array();
  for (const TicketInfo& ticket : state.tickets) {
    const TicketRecord& record = ticket.record;
    json.begin_object().member("number", record.number).member("priority", record.priority);
    json.member("count", record.count).member("missing", record.missing).member("share", record.share);
    json.key("wants").begin_array();
    for (const std::string& uuid : record.wants) json.value(printable_lines(uuid));
    json.end_array().member("user", printable_lines(user_name(ticket.owner))).member("uid", ticket.owner);
    json.member("pid", record.waiter.pid);
    put_text(json, "command", record.command);
    put_time(json, "since", record.since);
    json.end_object();
  }
  json.end_array();
}

std::string leases_json(const LeasesView& view, const std::string& path) {
  const FolderState& state = view.state;
  JsonWriter json;
  json.begin_object().member("folder", printable_lines(path)).key("leases").begin_array();
  for (const LeaseInfo& lease : state.leases) {
    const LeaseRecord& record = lease.record;
    json.begin_object().member("gpu", printable_lines(lease.gpu));
    put_text(json, "label", record.label);
    put_text(json, "lease", record.id);
    json.member("kind", name_of(record.kind)).member("user", printable_lines(user_name(lease.owner)));
    json.member("uid", lease.owner);
    json.member("pid", record.holder.pid > 0 ? std::optional(record.holder.pid) : std::nullopt);
    json.member("alive", lease.readable ? alive(record.holder) : std::nullopt);
    put_text(json, "command", record.command);
    put_time(json, "since", record.since);
    put_time(json, "until", record.until);
    put_text(json, "within", record.within);
    const LeasedGpu seen = leased_gpu(lease, view.gpus);
    json.member("util_percent", seen.util);
    json.member("idle_seconds",
                seen.idle_for ? std::optional(std::chrono::duration<double>(*seen.idle_for).count()) : std::nullopt);
    json.member("share", record.share).end_object();
  }
  json.end_array().key("queue");
  put_queue(json, state);
  return json.end_object().take();
}

}  // namespace lull
