#include "sense/proof.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/process.h"
#include "sense/processes.h"

namespace lull {
namespace {

constexpr std::string_view kMpsServer = "nvidia-cuda-mps-server";

using Folder = std::unique_ptr<DIR, int (*)(DIR*)>;

Folder open_folder(int dir, const std::string& path) {
  auto fd = open_at(dir, path, O_RDONLY | O_DIRECTORY);
  if (!fd) {
    errno = fd.error().errno_value;
    return {nullptr, ::closedir};
  }
  Folder folder(::fdopendir(fd->get()), ::closedir);
  if (folder) (void)fd->release();
  return folder;
}

// Whether a table of files has one of these; nothing: it may not be looked at.
std::optional<bool> has(int process, const std::string& path, std::span<const DeviceFile> wanted) {
  const Folder files = open_folder(process, path);
  if (!files) return process_is_gone(errno) ? std::optional(false) : std::nullopt;
  errno = 0;
  while (const dirent* entry = ::readdir(files.get())) {
    const int folder = ::dirfd(files.get());
    const auto id = entry->d_name[0] != '.' ? file_id(folder, entry->d_name) : std::nullopt;
    if (entry->d_name[0] != '.' &&
        std::ranges::any_of(wanted, [&](const DeviceFile& file) { return file.is(folder, entry->d_name, id); }))
      return true;
    errno = 0;
  }
  return errno == 0 || process_is_gone(errno) ? std::optional(false) : std::nullopt;
}

// Threads may have files of their own, and a first thread that has ended has none.
std::optional<bool> holds(int process, const ProcessEntry& entry, std::span<const DeviceFile> wanted) {
  std::optional<bool> answer = has(process, "fd", wanted);
  if (answer != false || entry.threads <= 1) return answer;
  const Folder threads = open_folder(process, "task");
  if (!threads) return process_is_gone(errno) ? std::optional(false) : std::nullopt;
  errno = 0;
  while (const dirent* thread = ::readdir(threads.get())) {
    const auto one = thread->d_name[0] == '.' ? std::optional(false)
                                              : has(process, std::string("task/") + thread->d_name + "/fd", wanted);
    if (one == true) return true;
    if (!one) answer.reset();
    errno = 0;
  }
  return errno == 0 || process_is_gone(errno) ? answer : std::nullopt;
}

// The kernel cuts the name, and that of the server's own control daemon begins alike.
bool is_mps_server(int process) {
  const auto comm = read_file(process, "comm", 64);
  if (!comm || !std::string_view(*comm).starts_with(kMpsServer.substr(0, kCommSize))) return false;
  const auto line = read_file(process, "cmdline", 4096);
  if (!line || line->empty()) return true;  // not ours to read: its name has to do
  const std::string_view program = std::string_view(*line).substr(0, line->find('\0'));
  return program.substr(program.rfind('/') + 1) == kMpsServer;
}

// A /proc that is mounted with hidepid does not show the processes of others; the kernel knows them all the same.
bool is_hidden(pid_t pid, const Root& root) {
  return root.proc == Root{}.proc && ::kill(pid, 0) != 0 && errno == EPERM;
}

}  // namespace

ProcessProofs::Known ProcessProofs::check(const GpuProcess& process, const How& how, const Root& root) {
  Known known;
  // What is unknown is unproven. In another pid namespace a missing pid proves nothing.
  const auto gone = [&](int error) {
    if (how.numbers_are_ours && process_is_gone(error) && !is_hidden(process.pid, root)) known.proof = Proof::stale;
    return known;
  };
  const auto folder = open_file(root.proc + "/" + std::to_string(process.pid), O_RDONLY | O_DIRECTORY);
  if (!folder) return gone(folder.error().errno_value);
  const auto text = read_file(folder->get(), "stat", 4096);
  if (!text) return gone(text.error().errno_value);
  const auto entry = parse_process_entry(*text);
  if (!entry) return known;
  if (entry->ended()) return gone(ESRCH);
  const bool can_tell = !how.files.empty() && std::ranges::none_of(how.files, &DeviceFile::unknown);
  const std::optional<bool> held = can_tell ? holds(folder->get(), *entry, how.files) : std::nullopt;
  if (held == false && !(how.has_mps_server && how.numbers_are_ours)) return gone(ESRCH);
  known.start_ticks = entry->start_ticks;
  known.proof = held == true ? Proof::proven : Proof::unproven;
  known.here = held == true || how.numbers_are_ours;
  known.mps_server = known.here && process.compute && is_mps_server(folder->get());
  return known;
}

void ProcessProofs::look(std::span<GpuProcess> processes, const How& how, const Root& root) {
  const SystemClock clock;
  const Instant until = clock.now() + kLongest;
  // Whose turn it is: kInTurn of them, from next_ on.
  const bool few = processes.size() <= kFew;
  if (!few && next_ >= processes.size()) next_ = 0;
  const std::size_t longest_ago = 2 * (processes.size() / kInTurn + 1);  // should the driver change its order
  for (std::size_t place = 0; place < processes.size(); ++place) {
    GpuProcess& process = processes[place];
    Known& known = known_[process.pid];
    const bool met = known.list != 0;
    const bool turn =
        few || (place >= next_ && place < next_ + kInTurn) || (met && list_ - known.checked > longest_ago);
    bool old = false;  // it was to be looked at, and there was no time
    if (known.checked != list_ && (how.all || turn || !met || known.again)) {
      old = !turn && clock.now() >= until;
      if (old) {
        known.again = true;
      } else {
        const bool was_stale = known.was_stale;
        known = check(process, how, root);
        known.checked = list_;
        known.was_stale = was_stale;
      }
    }
    known.list = list_;
    process.here = known.here;
    process.proof = old && known.proof == Proof::proven ? Proof::unproven : known.proof;
    process.start_ticks = known.start_ticks;
    process.mps_server = known.mps_server;
  }
  if (!few) next_ += kInTurn;
}

void ProcessProofs::end_list() {
  std::erase_if(known_, [this](const auto& one) { return one.second.list != list_; });
  found_stale_ = false;
  for (auto& [pid, known] : known_) {
    const bool is_stale = known.proof == Proof::stale;
    found_stale_ = found_stale_ || (is_stale && !known.was_stale);
    known.was_stale = is_stale;
  }
}

void FirstReports::check(const DeviceId& device, std::vector<GpuProcess>& processes, Instant at) {
  Reports& reports = devices_[device];
  ++reports.list;
  std::size_t named = 0;
  for (GpuProcess& process : processes) {
    const auto [place, is_first] = reports.by_pid.try_emplace(process.pid, First{process.start_ticks, at});
    First& first = place->second;
    if (std::exchange(first.list, reports.list) != reports.list) ++named;  // one process may be named twice
    if (process.proof == Proof::stale) first.stale = true;
    if (is_first || process.start_ticks == first.start_ticks) {
      // it is who it was
    } else if (first.start_ticks == 0 && Instant(since_boot(process.start_ticks)) <= first.at) {
      first.start_ticks = process.start_ticks;  // it could not be seen at first
    } else if (process.start_ticks != 0) {
      first.stale = true;
    }
    if (!first.stale) continue;
    process.proof = Proof::stale;
    process.here = process.mps_server = false;
    process.start_ticks = 0;
  }
  if (reports.by_pid.size() > named)
    std::erase_if(reports.by_pid, [&](const auto& one) { return one.second.list != reports.list; });
}

void FirstReports::doubt_foreign_numbers(std::span<Reading> readings) {
  for (const Reading& reading : readings)
    if (reading.processes_hidden && reading.processes)
      foreign_numbers_ = foreign_numbers_ || std::ranges::any_of(*reading.processes, [](const GpuProcess& one) {
                           return !one.here && one.proof != Proof::stale;
                         });
  if (!foreign_numbers_) return;
  for (Reading& reading : readings)
    if (reading.processes_hidden && reading.processes)
      for (GpuProcess& one : *reading.processes)
        if (one.proof == Proof::proven) one.proof = Proof::unproven;
}

}  // namespace lull
