#include "view/leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <tuple>

#include "base/calendar.h"
#include "base/json_writer.h"
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
  const auto lives = alive(lease.record.holder);
  switch (lease.record.kind) {
    case LeaseKind::collecting: return "collecting";
    case LeaseKind::hold:
      return lease.record.until ? "held until " + format_local(*lease.record.until, "%H:%M:%S") : "held";
    case LeaseKind::process:
    case LeaseKind::job: break;
  }
  return lives == false ? "left behind" : "running";
}

LeasedGpu seen_of(const LeaseInfo& lease, const LeasedGpus& gpus) {
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

}  // namespace

void sort_by_gpu(std::vector<LeaseInfo>& leases) {
  const auto key = [](const LeaseInfo& lease) {
    const auto parts = split(lease.record.label, ':');
    const auto number = [&](std::size_t i) { return i < parts.size() ? to_unsigned(parts[i]).value_or(9999) : 0; };
    return std::tuple(number(0), number(1), lease.file);
  };
  std::sort(leases.begin(), leases.end(), [&](const LeaseInfo& a, const LeaseInfo& b) { return key(a) < key(b); });
}

std::vector<std::string> leases_table(const FolderState& state, const LeasedGpus& gpus, WallTime now,
                                      const Screen& screen) {
  std::vector<Column> columns = {
      {"GPU", Align::right, 0, 0, {}},      {"USER", Align::left, 0, 8, {}},     {"PID", Align::right, 2, 0, {}},
      {"FOR", Align::right, 3, 0, {}},      {"STATE", Align::left, 4, 0, {}},    {"UTIL", Align::right, 0, 0, {}},
      {"IDLE FOR", Align::right, 0, 0, {}}, {"COMMAND", Align::left, 0, 12, {}}, {"UUID", Align::left, 1, 0, {}}};
  const auto add = [&](std::vector<std::string> cells) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      columns[i].cells.push_back({for_screen(cells[i], screen), Tone::plain});
  };
  for (const LeaseInfo& lease : state.leases) {
    const LeasedGpu seen = seen_of(lease, gpus);
    add({label(lease), printable(user_name(lease.owner)),
         lease.record.holder.pid > 0 ? fmt::format("{}", lease.record.holder.pid) : "?", age(lease.record.since, now),
         state_text(lease) + share_text(lease, state), util_text(seen), idle_text(seen, screen.utf8),
         printable(lease.record.command), printable(lease.gpu)});
  }
  for (const TicketInfo& ticket : state.tickets) {
    const TicketRecord& record = ticket.record;
    const std::string collected =
        record.missing < record.count ? fmt::format(", has {}", record.count - record.missing) : "";
    add({"-", printable(user_name(ticket.owner)), fmt::format("{}", record.waiter.pid), age(record.since, now),
         fmt::format("waits for {}{}", record.count, collected), "-", "-", printable(record.command), ""});
  }
  return layout(columns, {}, screen);
}

std::string leases_json(const FolderState& state, const LeasedGpus& gpus, const std::string& path) {
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
    const LeasedGpu seen = seen_of(lease, gpus);
    json.member("util_percent", seen.util);
    json.member("idle_seconds",
                seen.idle_for ? std::optional(std::chrono::duration<double>(*seen.idle_for).count()) : std::nullopt);
    json.member("share", record.share).end_object();
  }
  json.end_array().key("queue").begin_array();
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
  return json.end_array().end_object().take();
}

}  // namespace lull
