#include "sense/processes.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <optional>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

constexpr std::size_t kMostArguments = 128 << 10;  // what is kept of a command line

template <class Number>
bool to_number(std::string_view text, Number& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc{} && end == text.data() + text.size();
}

Result<Fd> open_process(const Root& root, pid_t pid) {
  return open_file(root.proc + "/" + std::to_string(pid), O_RDONLY | O_DIRECTORY);
}

// "Uid:\t1000\t1000\t1000\t1000": the effective one, second in the row.
std::optional<uid_t> effective_uid(std::string_view status) {
  std::size_t at = status.starts_with("Uid:") ? 0 : status.find("\nUid:");
  if (at == std::string_view::npos) return std::nullopt;
  at = status.find(':', at) + 1;
  const std::string_view line = trim(status.substr(at, status.find('\n', at) - at));
  const std::size_t first = line.find_first_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  const std::string_view rest = trim(line.substr(first));
  uid_t uid = 0;
  return to_number(rest.substr(0, rest.find_first_of(" \t")), uid) ? std::optional(uid) : std::nullopt;
}

// Arguments end in NUL each; a process that rewrote its title may have left out the last.
std::vector<std::string> split_arguments(std::string_view text) {
  std::vector<std::string> arguments;
  // A shortened title leaves a tail of NULs that were never arguments.
  while (text.size() > 1 && text.ends_with('\0') && text[text.size() - 2] == '\0') text.remove_suffix(1);
  while (!text.empty()) {
    const std::size_t end = text.find('\0');
    arguments.emplace_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  if (arguments.size() == 1 && arguments[0].empty()) arguments.clear();
  return arguments;
}

ProcessInfo describe(int folder, ProcessEntry&& stat) {
  ProcessInfo info;
  info.pid = stat.pid;
  info.parent = stat.parent;
  info.state = stat.state;
  info.start_ticks = stat.start_ticks;
  info.started = started_at(stat.start_ticks);
  info.name = std::move(stat.name);
  if (const auto status = read_file(folder, "status")) {
    if (const auto uid = effective_uid(*status)) {
      info.uid = *uid;
      info.user = user_name(*uid);
    }
  }
  if (!stat.kernel_thread)
    if (const auto arguments = read_file(folder, "cmdline", kMostArguments))
      info.arguments = split_arguments(*arguments);
  if (const auto cgroup = read_file(folder, "cgroup")) {
    info.cgroup = cgroup_path(*cgroup);
    info.container = container_of(info.cgroup);
  }
  return info;
}

}  // namespace

Result<ProcessInfo> read_process(const Root& root, pid_t pid) {
  const Fd folder = TRY(open_process(root, pid));
  const std::string text = TRY(read_file(folder.get(), "stat"));
  auto entry = parse_process_entry(text);
  if (!entry) return fail("cannot make sense of " + root.proc + "/" + std::to_string(pid) + "/stat");
  return describe(folder.get(), *std::move(entry));
}

std::optional<uid_t> process_user(const Root& root, pid_t pid) {
  const auto status = read_file(AT_FDCWD, root.proc + "/" + std::to_string(pid) + "/status", 8192);
  return status ? effective_uid(*status) : std::nullopt;
}

std::vector<pid_t> process_ids(const Root& root) {
  std::vector<pid_t> pids;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(root.proc.c_str()), ::closedir);
  if (folder == nullptr) return pids;
  while (const dirent* entry = ::readdir(folder.get())) {
    pid_t pid = 0;
    if (to_number(std::string_view(entry->d_name), pid) && pid > 0) pids.push_back(pid);
  }
  std::ranges::sort(pids);
  return pids;
}

void join_processes(Snapshot& snapshot, const Root& root) {
  snapshot.processes.clear();
  for (const Reading& reading : snapshot.readings) {
    if (!reading.tenants) continue;
    for (const Tenant& tenant : *reading.tenants) {
      if (snapshot.processes.contains(tenant.pid)) continue;
      if (auto info = read_process(root, tenant.pid)) snapshot.processes.emplace(tenant.pid, std::move(*info));
    }
  }
}

WallTime started_at(std::uint64_t start_ticks) {
  static const long hertz = ::sysconf(_SC_CLK_TCK);
  const SystemClock clock;
  const auto per_second = static_cast<std::uint64_t>(hertz > 0 ? hertz : 100);
  const Duration since_boot =
      std::chrono::seconds(start_ticks / per_second) +
      Duration(static_cast<std::int64_t>(start_ticks % per_second * 1'000'000'000 / per_second));
  return clock.wall() - clock.now().time_since_epoch() + since_boot;
}

bool inside_slurm() {
  const char* job = std::getenv("SLURM_JOB_ID");
  if (job != nullptr && *job != '\0') return true;
  const auto where = read_file("/proc/self/cgroup");
  return where && container_of(cgroup_path(*where)).starts_with("slurm:");
}

}  // namespace lull
