#include "park/record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::string_view kFirstLine = "lull-park: 1";
constexpr std::string_view kLastLine = "end: 1";
constexpr const char* kCreating = "creating";  // the lock for a new entry
constexpr std::size_t kLargestEntry = std::size_t{4} << 20;

constexpr std::array<std::string_view, 5> kSteps = {"locking", "checkpointing", "parked", "restoring", "unlocking"};

bool is_id(std::string_view text) {
  return !text.empty() && text.size() <= 64 && text != kCreating &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-'; });
}

// Reads "WORD WORD …"; nothing where there are fewer or more.
std::optional<std::vector<std::string_view>> split_into(std::string_view text, std::size_t count) {
  auto parts = split(text, ' ');
  if (parts.size() != count) return std::nullopt;
  return parts;
}

template <class T>
bool number(std::string_view text, T& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc() && end == text.data() + text.size();
}

bool take_line(ParkRecord& record, std::string_view key, std::string_view value) {
  if (key == "id") return record.id = value, is_id(value);
  if (key == "boot") return record.boot = value, !value.empty();
  if (key == "tool") return record.tool = value, value.starts_with('/');
  if (key == "name") return record.name = value, true;
  if (key == "share") return number(value, record.share);
  if (key == "lease") return record.lease = value, !value.empty();
  if (key == "given-lease") {
    GivenLease one;
    const auto parts = split_into(value, 2);
    if (!parts || (*parts)[0].empty() || !number((*parts)[1], one.owner)) return false;
    one.id = (*parts)[0];
    record.given_leases.push_back(one);
    return true;
  }
  if (key == "kept-lease") return record.kept_leases.emplace_back(value), !value.empty();
  if (key == "step") {
    const auto found = one_of(value, kSteps);
    return found && (record.step = static_cast<ParkStep>(*found), true);
  }
  if (key == "since") {
    std::int64_t seconds = 0;
    if (!number(value, seconds)) return false;
    record.since = WallTime(std::chrono::seconds(seconds));
    return true;
  }
  if (key == "owner") {
    const auto parts = split_into(value, 2);
    return parts && number((*parts)[0], record.owner) && number((*parts)[1], record.owner_start);
  }
  if (key == "root") {
    const auto parts = split_into(value, 2);
    return parts && number((*parts)[0], record.root) && number((*parts)[1], record.root_start);
  }
  if (key == "process") {
    ParkedProcess one;
    const auto parts = split_into(value, 2);
    if (!parts || !number((*parts)[0], one.pid) || !number((*parts)[1], one.start_ticks) || one.pid <= 0) return false;
    record.processes.push_back(one);
    return true;
  }
  if (key == "memory") {  // of the process above
    ParkedMemory one;
    const auto parts = split_into(value, 3);
    if (!parts || record.processes.empty() || !number((*parts)[2], one.bytes)) return false;
    one.gpu = (*parts)[0];
    one.label = (*parts)[1];
    record.processes.back().memory.push_back(one);
    return true;
  }
  return false;
}

Result<> sync_folder(int fd) {
  if (::fsync(fd) != 0) return fail(errno, "the folder of parked jobs");
  return {};
}

}  // namespace

std::string_view to_string(ParkStep step) { return kSteps[static_cast<std::size_t>(step)]; }

bool ParkRecord::has(pid_t pid, std::uint64_t start_ticks) const {
  return std::ranges::any_of(
      processes, [&](const ParkedProcess& one) { return one.pid == pid && one.start_ticks == start_ticks; });
}

std::string write_record(const ParkRecord& record) {
  std::string text = fmt::format("{}\nid: {}\nboot: {}\nstep: {}\ntool: {}\nname: {}\nroot: {} {}\nshare: {}\n",
                                 kFirstLine, record.id, record.boot, to_string(record.step), record.tool,
                                 printable(record.name), record.root, record.root_start, record.share);
  text += fmt::format("owner: {} {}\n", record.owner, record.owner_start);
  for (const std::string& id : record.kept_leases) text += fmt::format("kept-lease: {}\n", id);
  for (const GivenLease& one : record.given_leases) text += fmt::format("given-lease: {} {}\n", one.id, one.owner);
  if (!record.lease.empty()) text += fmt::format("lease: {}\n", record.lease);
  if (record.since)
    text += fmt::format("since: {}\n",
                        std::chrono::duration_cast<std::chrono::seconds>(record.since->time_since_epoch()).count());
  for (const ParkedProcess& one : record.processes) {
    text += fmt::format("process: {} {}\n", one.pid, one.start_ticks);
    for (const ParkedMemory& part : one.memory)
      text += fmt::format("memory: {} {} {}\n", part.gpu, part.label, part.bytes);
  }
  return text + std::string(kLastLine) + "\n";
}

std::optional<ParkRecord> read_park_record(std::string_view text) {
  ParkRecord record;
  std::vector<std::string_view> lines = split(text, '\n');
  if (lines.size() < 3 || lines.front() != kFirstLine || !lines.back().empty()) return std::nullopt;
  lines.pop_back();
  if (lines.back() != kLastLine) return std::nullopt;
  for (std::size_t i = 1; i + 1 < lines.size(); ++i) {
    const std::size_t colon = lines[i].find(": ");
    if (colon == std::string_view::npos) return std::nullopt;
    if (!take_line(record, lines[i].substr(0, colon), lines[i].substr(colon + 2))) return std::nullopt;
  }
  if (record.id.empty() || record.boot.empty() || record.tool.empty() || record.processes.empty()) return std::nullopt;
  return record;
}

std::string boot_id() {
  const auto text = read_file("/proc/sys/kernel/random/boot_id");
  // A container may have our home folder, and other processes behind our numbers.
  struct stat pids{};
  if (!text || ::stat("/proc/self/ns/pid", &pids) != 0) return "";
  return fmt::format("{}:{}", trim(*text), pids.st_ino);
}

std::string memory_text(const ParkRecord& record) {
  std::map<std::pair<std::string, std::string>, std::uint64_t> gpus;  // by label and UUID
  for (const ParkedProcess& one : record.processes)
    for (const ParkedMemory& part : one.memory) gpus[{part.label, part.gpu}] += part.bytes;
  std::string text;
  for (const auto& [gpu, bytes] : gpus)
    text += fmt::format("{}{} of GPU {}", text.empty() ? "" : ", ", format_size(static_cast<double>(bytes)),
                        printable(gpu.first));
  return text;
}

// ---- the folder

std::string ParkFolder::place() {
  if (const char* path = ::secure_getenv("LULL_PARK"); path != nullptr && *path != '\0')
    return std::filesystem::absolute(path).string();
  if (const char* sim = ::secure_getenv("LULL_SIM"); sim != nullptr && *sim != '\0') return std::string(sim) + "/park";
  if (::geteuid() == 0) return "/run/lull-park";
  if (const char* state = ::secure_getenv("XDG_STATE_HOME"); state != nullptr && *state == '/')
    return std::string(state) + "/lull/park";
  const char* home = ::secure_getenv("HOME");
  return home != nullptr && *home == '/' ? std::string(home) + "/.local/state/lull/park" : "";
}

Result<std::optional<ParkFolder>> ParkFolder::look() {
  const std::string path = place();
  if (path.empty()) return std::optional<ParkFolder>();
  auto fd = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
  if (!fd && (fd.error().errno_value == ENOENT || fd.error().errno_value == ENOTDIR))
    return std::optional<ParkFolder>();
  if (!fd) return std::unexpected(std::move(fd).error());
  struct stat status{};
  if (::fstat(fd->get(), &status) != 0) return fail(errno, printable(path));
  if (status.st_uid != ::geteuid() || (status.st_mode & 022) != 0)
    return fail(fmt::format("{0} is not a folder of ours alone, so it is not believed", printable(path)));
  return std::optional(ParkFolder(*std::move(fd), path));
}

Result<ParkFolder> ParkFolder::open() {
  const std::string path = place();
  if (path.empty()) return fail("there is no folder for what is parked: HOME is not set");
  std::error_code failed;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return fail(errno, printable(path));
  auto found = TRY(look());
  if (!found) return fail(ENOENT, printable(path));
  return *std::move(found);
}

Result<ParkFolder::Lock> ParkFolder::lock(const std::string& id) const {
  const std::string name = id + ".lock";
  for (;;) {
    Fd fd = TRY(open_at(fd_.get(), name, O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
      return fail(errno == EWOULDBLOCK ? EAGAIN : errno, "another lull works on it");
    // Whoever had it before may have removed it.
    struct stat held{};
    struct stat named{};
    if (::fstat(fd.get(), &held) == 0 && ::fstatat(fd_.get(), name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
        held.st_ino == named.st_ino && held.st_dev == named.st_dev)
      return Lock{std::move(fd)};
  }
}

Result<ParkRecord> ParkFolder::read(const std::string& id) const {
  const std::string text = TRY(read_file(fd_.get(), id, kLargestEntry));
  auto record = read_park_record(text);
  if (!record || record->id != id) return fail(EBADMSG, printable(path_ + "/" + id));
  return *std::move(record);
}

Result<std::vector<ParkRecord>> ParkFolder::all(std::size_t* unreadable) const {
  Directory folder(path_);
  if (!folder) return fail(errno, printable(path_));
  const std::string boot = boot_id();
  if (boot.empty()) return fail("the boot id cannot be read");  // so it is unknown what is of this boot
  std::vector<ParkRecord> found;
  errno = 0;
  for (const char* name = folder.next(); name != nullptr; errno = 0, name = folder.next()) {
    if (!is_id(name)) continue;
    auto record = read(name);
    if (!record && unreadable != nullptr && ::faccessat(fd_.get(), name, F_OK, 0) == 0) ++*unreadable;
    if (record && record->boot == boot) found.push_back(*std::move(record));
  }
  if (errno != 0) return fail(errno, printable(path_));
  std::ranges::sort(found, {}, [](const ParkRecord& one) { return one.since; });
  return found;
}

Result<> ParkFolder::write(const ParkRecord& record) const {
  const std::string draft = "." + record.id;
  {
    const Fd fd = TRY(open_at(fd_.get(), draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600));
    TRY(write_all(fd.get(), write_record(record)));
    if (::fsync(fd.get()) != 0) return fail(errno, "writing what is parked");
  }
  if (::renameat(fd_.get(), draft.c_str(), fd_.get(), record.id.c_str()) != 0)
    return fail(errno, "writing what is parked");
  return sync_folder(fd_.get());
}

void ParkFolder::remove(const std::string& id) const {
  (void)::unlinkat(fd_.get(), id.c_str(), 0);
  (void)::unlinkat(fd_.get(), ("." + id).c_str(), 0);  // of one who died while it wrote
  (void)::unlinkat(fd_.get(), (id + ".lock").c_str(), 0);
  (void)sync_folder(fd_.get());
}

bool any_interrupted() {
  const auto folder = ParkFolder::look();
  if (!folder || !*folder) return false;
  const auto all = (*folder)->all();
  return all && std::ranges::any_of(*all, [](const ParkRecord& one) {
           return one.step != ParkStep::parked && !Process::open(ProcessId{one.owner, one.owner_start});
         });
}

}  // namespace lull
