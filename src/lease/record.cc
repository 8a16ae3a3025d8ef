#include "lease/record.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <map>

#include "base/calendar.h"
#include "base/process.h"
#include "base/random.h"
#include "base/text.h"

namespace lull {
namespace {

constexpr std::size_t kLongestValue = 2000;
constexpr std::array<std::string_view, 4> kKinds = {"job", "hold", "process", "collecting"};

void put(std::string& out, std::string_view key, std::string_view value) {
  if (value.empty()) return;
  out += key;
  out += ": ";
  out += printable(value.substr(0, kLongestValue));
  out += '\n';
}
void put(std::string& out, std::string_view key, std::uint64_t value) { put(out, key, fmt::format("{}", value)); }

using Lines = std::map<std::string_view, std::string_view>;

std::optional<Lines> lines_of(std::string_view text) {
  if (text.empty() || text.back() != '\n') return {};  // not whole
  Lines lines;
  for (const std::string_view line : split(text, '\n')) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string_view::npos) lines.emplace(line.substr(0, colon), line.substr(colon + 2));
  }
  return lines;
}

std::string_view get(const Lines& lines, std::string_view key) {
  const auto found = lines.find(key);
  return found == lines.end() ? std::string_view() : found->second;
}
std::uint64_t number(const Lines& lines, std::string_view key) { return to_unsigned(get(lines, key)).value_or(0); }

// Whoever does not know the word, or reads none, takes the GPU for one that is not shared.
void put_share(std::string& out, unsigned share) {
  if (share > 1) put(out, "share", std::uint64_t{share});
}
unsigned get_share(const Lines& lines) {
  return static_cast<unsigned>(std::clamp<std::uint64_t>(number(lines, "share"), 1, kMostHolders));
}

void put_mark(std::string& out, const ProcessMark& mark) {
  put(out, "pid", static_cast<std::uint64_t>(mark.pid));
  put(out, "start-ticks", mark.start_ticks);
  put(out, "pid-namespace", mark.pid_namespace);
}
ProcessMark get_mark(const Lines& lines) {
  const std::uint64_t pid = number(lines, "pid");
  return {pid > 0x7fffffff ? 0 : static_cast<pid_t>(pid), number(lines, "start-ticks"), number(lines, "pid-namespace")};
}

void put_list(std::string& out, std::string_view key, const std::vector<std::string>& words) {
  out += key;
  out += ':';
  for (const std::string& word : words) out += ' ' + word;
  out += " \n";
}
std::vector<std::string> get_list(const Lines& lines, std::string_view key) {
  std::vector<std::string> words;
  for (const std::string_view word : split(get(lines, key), ' '))
    if (!word.empty()) words.emplace_back(word);
  return words;
}

std::uint64_t started(pid_t pid) {
  const auto entry = read_process_entry(pid);
  return entry ? entry->start_ticks : 0;
}

std::uint64_t own_namespace() {
  struct stat status{};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

}  // namespace

std::string_view name_of(LeaseKind kind) { return kKinds[static_cast<std::size_t>(kind)]; }

ProcessMark ProcessMark::of(pid_t pid) {
  if (pid == 0) pid = ::getpid();
  return {pid, started(pid), own_namespace()};
}

ProcessMark ProcessMark::of(const Process& process) { return {process.pid(), process.start_ticks(), own_namespace()}; }

std::optional<bool> alive(const ProcessMark& mark) {
  if (mark.pid <= 0 || mark.pid_namespace == 0 || mark.pid_namespace != own_namespace()) return {};
  if (::kill(mark.pid, 0) != 0 && errno == ESRCH) return false;
  const std::uint64_t ticks = started(mark.pid);
  if (ticks == 0 || mark.start_ticks == 0) return {};
  return ticks == mark.start_ticks;
}

bool stopped(const ProcessMark& mark) {
  if (mark.pid <= 0 || mark.pid_namespace == 0 || mark.pid_namespace != own_namespace()) return false;
  const auto entry = read_process_entry(mark.pid);
  return entry && entry->start_ticks == mark.start_ticks && run_state(*entry) == 'T';
}

std::string write_record(const LeaseRecord& record) {
  std::string out;
  put(out, "gpu", record.gpu);
  put(out, "label", record.label);
  put(out, "lease", record.id);
  put(out, "kind", name_of(record.kind));
  put(out, "user", record.user);
  put(out, "command", record.command);
  if (record.since) put(out, "since", format_rfc3339(*record.since));
  if (record.until) put(out, "until", format_rfc3339(*record.until));
  put(out, "within", record.within);
  put_share(out, record.share);
  put_mark(out, record.holder);
  return out;
}

std::string write_record(const TicketRecord& record) {
  std::string out;
  put(out, "number", record.number);
  put(out, "priority", fmt::format("{}", record.priority));
  put(out, "count", record.count);
  put(out, "missing", record.missing);
  put_list(out, "wants", record.wants);
  put_list(out, "scope", record.scope);
  put_share(out, record.share);
  put(out, "within", record.within);
  put(out, "user", record.user);
  put(out, "command", record.command);
  if (record.since) put(out, "since", format_rfc3339(*record.since));
  put_mark(out, record.waiter);
  return out;
}

std::optional<LeaseRecord> read_lease(std::string_view text) {
  const auto lines = lines_of(text);
  if (!lines || get(*lines, "gpu").empty()) return {};
  LeaseRecord record;
  record.gpu = get(*lines, "gpu");
  record.label = get(*lines, "label");
  record.id = get(*lines, "lease");
  if (const auto kind = one_of(get(*lines, "kind"), kKinds)) record.kind = static_cast<LeaseKind>(*kind);
  record.user = get(*lines, "user");
  record.command = get(*lines, "command");
  record.since = parse_rfc3339(get(*lines, "since"));
  record.until = parse_rfc3339(get(*lines, "until"));
  record.within = get(*lines, "within");
  record.share = get_share(*lines);
  record.holder = get_mark(*lines);
  return record;
}

std::optional<TicketRecord> read_ticket(std::string_view text) {
  const auto lines = lines_of(text);
  if (!lines || number(*lines, "number") == 0) return {};
  TicketRecord record;
  record.number = number(*lines, "number");
  const std::string_view priority = get(*lines, "priority");
  std::from_chars(priority.data(), priority.data() + priority.size(), record.priority);
  record.priority = std::clamp(record.priority, -kGreatestPriority, kGreatestPriority);  // as the option has it
  record.count = static_cast<unsigned>(std::min<std::uint64_t>(number(*lines, "count"), 4096));
  record.missing = static_cast<unsigned>(std::min<std::uint64_t>(number(*lines, "missing"), 4096));
  record.wants = get_list(*lines, "wants");
  record.scope = get_list(*lines, "scope");
  record.within = get(*lines, "within");
  record.share = get_share(*lines);
  record.user = get(*lines, "user");
  record.command = get(*lines, "command");
  record.since = parse_rfc3339(get(*lines, "since"));
  record.waiter = get_mark(*lines);
  return record;
}

bool plain_word(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-';
  });
}

std::string random_id() { return fmt::format("{:016x}", random_bits()); }

std::string join_command(std::span<const std::string> arguments) {
  std::string line;
  for (const std::string& argument : arguments) {
    if (!line.empty()) line += ' ';
    line += argument;
  }
  return printable(std::string_view(line).substr(0, kLongestValue));
}

namespace {

// A part of a file's name: "PCI-00000000-3B-00-0". A MIG device has no address of its own; a partition of an AMD card,
// which has no UUID either, is named by its place there.
std::string by_address(const Device& device) {
  const bool part = device.kind == DeviceKind::mig;
  if (device.pci.empty() || (part && device.vendor == Vendor::nvidia)) return "";
  std::string name = "PCI-" + device.pci + (part ? "-" + std::to_string(device.mig_index) : "");
  std::ranges::replace_if(name, [](char c) { return c == ':' || c == '.'; }, '-');
  return name;
}

}  // namespace

std::string lease_name(const Device& device) {
  return device.shares_uuid || device.without_uuid ? by_address(device) : device.uuid;
}

std::vector<std::string> lease_names(const Device& device) {
  std::vector<std::string> names = {lease_name(device)};
  for (std::string name : {device.uuid, by_address(device)})
    if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
  std::erase(names, "");
  return names;
}

bool is_leased_as(const Device& device, std::string_view name) {
  return !name.empty() && (name == device.uuid || name == by_address(device));
}

}  // namespace lull
