// `lull leases`: who holds which GPU, and who waits. `lull release`: gives one back.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <tuple>

#include "base/calendar.h"
#include "base/fd.h"
#include "base/json_writer.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/say.h"
#include "cli/screen.h"
#include "lease/folder.h"
#include "sense/processes.h"
#include "view/columns.h"

namespace lull {

namespace {

const SystemClock kClock;

std::string age(const std::optional<WallTime>& since) {
  if (!since) return "?";
  const Duration passed = std::max<Duration>(kClock.wall() - *since, Duration::zero());
  return format_duration(std::chrono::floor<std::chrono::seconds>(passed));
}

// By GPU, as people count them: 2 before 10, 3:1 after 3:0.
void sort_by_gpu(std::vector<LeaseInfo>& leases) {
  const auto key = [](const LeaseInfo& lease) {
    const auto parts = split(lease.record.label, ':');
    const auto number = [&](std::size_t i) { return i < parts.size() ? to_unsigned(parts[i]).value_or(9999) : 0; };
    return std::tuple(number(0), number(1), lease.file);
  };
  std::sort(leases.begin(), leases.end(), [&](const LeaseInfo& a, const LeaseInfo& b) { return key(a) < key(b); });
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
  return lives == false ? "left behind" : "working";
}

void print_table(const FolderState& state) {
  const Screen screen = screen_of(STDOUT_FILENO);
  std::vector<Column> columns = {{"GPU", Align::right, 0, 0, {}},  {"USER", Align::left, 0, 8, {}},
                                 {"PID", Align::right, 2, 0, {}},  {"FOR", Align::right, 3, 0, {}},
                                 {"STATE", Align::left, 4, 0, {}}, {"COMMAND", Align::left, 0, 12, {}},
                                 {"UUID", Align::left, 1, 0, {}}};
  const auto add = [&](std::vector<std::string> cells) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      columns[i].cells.push_back({for_screen(cells[i], screen), Tone::plain});
  };
  for (const LeaseInfo& lease : state.leases)
    add({label(lease), printable(user_name(lease.owner)),
         lease.record.holder.pid > 0 ? fmt::format("{}", lease.record.holder.pid) : "?", age(lease.record.since),
         state_text(lease) + share_text(lease, state), printable(lease.record.command), printable(lease.gpu)});
  for (const TicketInfo& ticket : state.tickets) {
    const TicketRecord& record = ticket.record;
    const std::string collected =
        record.missing < record.count ? fmt::format(", has {}", record.count - record.missing) : "";
    add({"-", printable(user_name(ticket.owner)), fmt::format("{}", record.waiter.pid), age(record.since),
         fmt::format("waits for {}{}", record.count, collected), printable(record.command), ""});
  }
  for (const std::string& line : layout(columns, {}, screen)) fmt::print("{}\n", line);
}

void put_text(JsonWriter& json, std::string_view name, const std::string& text) {
  json.key(name).value_or_null(printable_lines(text));
}

void put_time(JsonWriter& json, std::string_view name, const std::optional<WallTime>& time) {
  json.member(name, time ? std::optional(format_rfc3339(*time)) : std::nullopt);
}

void print_json(const FolderState& state, const std::string& path) {
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
  fmt::print("{}\n", json.end_array().end_object().take());
}

// ---- release -------------------------------------------------------------------

bool meant(const LeaseInfo& lease, const std::string& word) {
  return word == "all" || lease.record.label == word || lease.record.id == word ||
         (word.size() >= 8 && lease.gpu.starts_with(word));
}

std::string named(const LeaseInfo& lease) {
  return fmt::format("GPU {}", label(lease) == "?" ? lease.gpu : label(lease));
}

// Why it may not be released as things are; empty: it may.
std::string objection(const LeaseInfo& lease, bool force) {
  const uid_t me = ::geteuid();
  if (me != 0 && lease.owner != me)
    return fmt::format("{} is leased to {}; only that user and root may release it", named(lease),
                       printable(user_name(lease.owner)));
  if (force || lease.record.kind == LeaseKind::hold || !lease.readable) return "";
  const auto lives = alive(lease.record.holder);
  if (lives == false) return "";
  return fmt::format("{} is in use by process {} ({}), which {}; --force takes the lease away and leaves it running",
                     named(lease), lease.record.holder.pid, printable(lease.record.command),
                     lives ? "lives" : "cannot be seen from here");
}

// All four of a process's user ids are this one: not a program that runs with more rights than its user has.
bool runs_as(pid_t pid, uid_t user) {
  const auto status = read_file(fmt::format("/proc/{}/status", pid));
  if (!status) return false;
  const std::string expected = fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}\n", user);
  return status->find("\n" + expected) != std::string::npos;
}

bool has_open(pid_t pid, const struct stat& file) {
  std::error_code ignored;
  const std::string folder = fmt::format("/proc/{}/fd", pid);
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    struct stat status{};
    if (::stat(at->path().c_str(), &status) == 0 && status.st_ino == file.st_ino && status.st_dev == file.st_dev)
      return true;
  }
  return false;
}

// A hold is nothing but its keeper. Anybody can write any number into a file of theirs, so it is ended only if it
// provably is the keeper: the process that the record means, by handle and start time, of the user whose file it is,
// with that very file open. `file` is what the name stood for before it was revoked.
void end_keeper(const LeaseFolder& folder, const LeaseInfo& lease, const struct stat& file) {
  if (lease.record.kind != LeaseKind::hold || file.st_uid != lease.owner) return;
  if (alive(lease.record.holder) != true) return;
  const auto left = folder.scan();
  if (!left) return;
  for (const LeaseInfo& other : left->leases)  // it may hold other GPUs still
    if (other.owner == lease.owner && other.record.holder == lease.record.holder) return;
  const auto process = Process::open(lease.record.holder.pid);
  if (!process || process->start_ticks() != lease.record.holder.start_ticks) return;
  if (runs_as(process->pid(), lease.owner) && has_open(process->pid(), file)) (void)process->signal(SIGTERM);
}

int release(const LeaseFolder& folder, const std::vector<std::string>& words, bool force) {
  const auto door = folder.enter();
  if (!door) return complain(door.error().message());
  const auto state = folder.scan();
  if (!state) return complain(state.error().message());
  int status = 0;
  for (const std::string& word : words) {
    bool found = false;
    // Of a GPU that several hold, one's own part is meant.
    const auto mine = [](const LeaseInfo& lease) { return ::geteuid() == 0 || lease.owner == ::geteuid(); };
    const bool only_mine = word == "all" || std::ranges::any_of(state->leases, [&](const LeaseInfo& lease) {
                             return meant(lease, word) && mine(lease);
                           });
    for (const LeaseInfo& lease : state->leases) {
      if (!meant(lease, word) || (only_mine && !mine(lease))) continue;
      found = true;
      if (const std::string why = objection(lease, force); !why.empty()) {
        status = complain(why);
        continue;
      }
      struct stat file{};
      const bool seen = ::fstatat(folder.descriptor(), lease.file.c_str(), &file, AT_SYMLINK_NOFOLLOW) == 0;
      if (const auto gone = folder.revoke(*door, lease.file); !gone) {
        status = complain(gone.error().message());
        continue;
      }
      if (seen) end_keeper(folder, lease, file);
      fmt::print("{} released\n", named(lease));
    }
    if (!found && word != "all")
      status = complain(fmt::format("{} is not leased; `lull leases` shows what is", printable(word)));
  }
  return status;
}

}  // namespace

int leases_command(int argc, char** argv) {
  CommandLine line("Shows who holds which GPU, and who waits for one.", "lull leases");
  line.footer("\nexample: lull leases --json");
  bool json = false;
  line.flag("--json", json, "for programs");
  if (const auto status = line.parse(argc, argv)) return *status;
  const LeasePlace place = LeasePlace::of_environment();
  const auto folder = LeaseFolder::look(place);
  if (!folder) return complain(folder.error().message());
  FolderState state;
  if (*folder) {
    auto scanned = (*folder)->scan();
    if (!scanned) return complain(scanned.error().message());
    state = *std::move(scanned);
    sort_by_gpu(state.leases);
  }
  if (json)
    print_json(state, place.path);
  else if (state.leases.empty() && state.tickets.empty())
    fmt::print(stderr, "no GPU is leased, nobody waits\n");
  else
    print_table(state);
  return 0;
}

int release_command(int argc, char** argv) {
  CommandLine line("Gives leased GPUs back: your own ones, as root any.", "lull release");
  line.footer(
      "\nA lease ends by itself with its job. This is for a hold that is no longer needed, for what a\n"
      "job left behind, and with --force for a job that keeps a GPU which it should not have.\n"
      "\nexample: lull release 3");
  std::vector<std::string> words;
  bool force = false;
  line.arguments("GPU", words, "index, UUID or lease, as `lull leases` shows them; all").required();
  line.flag("--force", force, "also if the holder lives; it is not ended");
  if (const auto status = line.parse(argc, argv)) return *status;
  const auto folder = LeaseFolder::look(LeasePlace::of_environment());
  if (!folder) return complain(folder.error().message());
  if (!*folder) return complain("nothing is leased");
  return release(**folder, words, force);
}

}  // namespace lull
