#include "sense/processes.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <limits>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/users.h"

namespace lull {
namespace {

// ---- which Slurm job, pod or container a process is in, by the paths of its cgroups: each runtime has its own habit

bool hex(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}
bool digits(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// docker-<id>.scope, cri-containerd-<id>.scope, libpod-<id>.scope, crio-<id>.scope, <id>, libpod-payload-<id>.
std::string_view container_id(std::string_view part) {
  if (part.ends_with(".scope")) part.remove_suffix(6);
  const std::size_t dash = part.rfind('-');
  const std::string_view id = dash == std::string_view::npos ? part : part.substr(dash + 1);
  return id.size() == 64 && hex(id) ? id.substr(0, 12) : std::string_view();
}

// Names instead of numbers: lxc.payload.NAME, lxc/NAME, machine-NAME.scope.
std::string_view named_container(std::string_view before, std::string_view part) {
  constexpr std::string_view kLxc = "lxc.payload.";
  if (part.starts_with(kLxc)) return part.substr(kLxc.size());
  if (before == "lxc") return part;
  if (before == "machine.slice" && part.starts_with("machine-") && part.ends_with(".scope"))
    return part.substr(8, part.size() - 8 - 6);
  return {};
}

// kubepods-burstable-pod6f2e_1.slice (systemd), pod6f2e-1 below kubepods (cgroupfs): "6f2e-1".
std::string pod_uid(std::string_view part, bool in_kubepods) {
  if (!in_kubepods) return {};
  if (part.ends_with(".slice")) {
    part.remove_suffix(6);
    const std::size_t pod = part.rfind("-pod");
    if (!part.starts_with("kubepods") || pod == std::string_view::npos) return {};
    part.remove_prefix(pod + 1);
  }
  if (!part.starts_with("pod") || part.size() == 3) return {};
  std::string uid(part.substr(3));
  std::ranges::replace(uid, '_', '-');
  return uid;
}

// Slurm's own number of a job in paths since 25.11: s8FXKTA79XAR00.
bool is_sluid(std::string_view part) {
  return part.size() == 14 && part.starts_with('s') &&
         part.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ", 1) == std::string_view::npos;
}

// One of each kind at most: of jobs and pods the outermost, since what is inside may have been named by the job itself;
// of containers the innermost.
void add_names(std::string_view path, std::vector<NamedCgroup>& found) {
  std::optional<NamedCgroup> job;
  std::optional<NamedCgroup> pod;
  std::optional<NamedCgroup> id;
  std::optional<NamedCgroup> named;
  std::string_view before;
  bool in_slurm = false;
  bool in_kubepods = false;
  bool users_own = false;  // below user@1000.service a user names cgroups as they like
  for (const std::string_view part : split(path, '/')) {
    const auto make = [&](CgroupKind kind, std::string name) {
      const auto end = static_cast<std::size_t>(part.data() - path.data()) + part.size();
      return NamedCgroup{kind, std::move(name), std::string(path.substr(0, end))};
    };
    const bool numbered = in_slurm && part.starts_with("job_") && digits(part.substr(4));
    if (!job && !users_own && (numbered || (before.ends_with("slurmstepd.scope") && is_sluid(part))))
      job = make(CgroupKind::slurm, std::string(numbered ? part.substr(4) : part));
    if (const std::string uid = pod_uid(part, in_kubepods); !pod && !uid.empty()) pod = make(CgroupKind::pod, uid);
    if (const std::string_view name = container_id(part); !name.empty())
      id = make(CgroupKind::container, std::string(name));
    if (const std::string_view name = named_container(before, part); !name.empty())
      named = make(CgroupKind::container, std::string(name));
    in_slurm = in_slurm || part.find("slurm") != std::string_view::npos;
    in_kubepods = in_kubepods || part.starts_with("kubepods");
    users_own = users_own || part.starts_with("user@");
    before = part;
  }
  for (auto* one : {&job, &pod, id ? &id : &named})
    if (*one && std::ranges::find(found, (*one)->path, &NamedCgroup::path) == found.end()) found.push_back(**one);
}

// ---- /proc

constexpr std::size_t kMostCommandBytes = 128 << 10;  // what is kept of a command line

Result<Fd> open_process(const Root& root, pid_t pid) {
  return open_file(root.proc + "/" + std::to_string(pid), O_RDONLY | O_DIRECTORY);
}

// "Uid:\t1000\t1000\t1000\t1000": the effective one, second in the row.
std::optional<uid_t> effective_uid(std::string_view status) {
  const std::string_view line = status_field(status, "Uid").value_or("");
  const std::size_t first = line.find_first_of(" \t");
  if (first == std::string_view::npos) return std::nullopt;
  const std::string_view rest = trim(line.substr(first));
  const auto uid = to_unsigned(rest.substr(0, rest.find_first_of(" \t")));
  return uid && *uid <= std::numeric_limits<uid_t>::max() ? std::optional(static_cast<uid_t>(*uid)) : std::nullopt;
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
      info.uid = uid;
      info.user = user_name(*uid);
    }
  }
  if (!stat.kernel_thread)
    if (const auto arguments = read_file(folder, "cmdline", kMostCommandBytes))
      info.arguments = split_arguments(*arguments);
  if (const auto cgroup = read_file(folder, "cgroup")) {
    info.cgroup = cgroup_path(*cgroup);
    info.container = container_of(*cgroup);
  }
  return info;
}

}  // namespace

std::string cgroup_path(std::string_view text) {
  std::string_view unified;
  std::string_view longest;
  for (const auto& [controllers, path] : cgroup_lines(text)) {
    if (controllers.empty()) unified = path;
    // Where several controllers have hierarchies of their own, the deepest path says most.
    if (path.size() > longest.size()) longest = path;
  }
  return std::string(unified.size() > 1 ? unified : longest.size() > 1 ? longest : unified);
}

std::vector<NamedCgroup> named_cgroups(std::string_view text) {
  std::vector<NamedCgroup> found;
  for (const CgroupLine& line : cgroup_lines(text)) add_names(line.path, found);
  std::ranges::stable_sort(found, std::greater(), &NamedCgroup::kind);
  return found;
}

std::string to_text(const NamedCgroup& one) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"", "pod:", "slurm:"};
  return std::string(kPrefixes[static_cast<std::size_t>(one.kind)]) + one.name;
}

std::string container_of(std::string_view text) {
  const std::vector<NamedCgroup> found = named_cgroups(text);
  return found.empty() ? "" : to_text(found.front());
}

Result<ProcessInfo> read_process(const Root& root, pid_t pid) {
  const Fd folder = TRY(open_process(root, pid));
  const std::string text = TRY(read_file(folder.get(), "stat"));
  auto entry = parse_process_entry(text);
  if (!entry) return fail("cannot make sense of " + root.proc + "/" + std::to_string(pid) + "/stat");
  return describe(folder.get(), *std::move(entry));
}

void add_process_info(std::span<ProcessInfo> known, std::span<Reading> readings) {
  std::unordered_map<pid_t, std::shared_ptr<const ProcessInfo>> by_pid;
  for (ProcessInfo& one : known) {
    const pid_t pid = one.pid;
    by_pid.emplace(pid, std::make_shared<const ProcessInfo>(std::move(one)));
  }
  if (by_pid.empty()) return;
  for (Reading& reading : readings)
    for (GpuProcess& process : reading.processes ? std::span(*reading.processes) : std::span<GpuProcess>())
      if (const auto found = by_pid.find(process.pid); found != by_pid.end()) process.set_info(found->second);
}

std::optional<uid_t> process_user(const Root& root, pid_t pid) {
  const auto status = read_file(AT_FDCWD, root.proc + "/" + std::to_string(pid) + "/status", 8192);
  return status ? effective_uid(*status) : std::nullopt;
}

Result<std::vector<pid_t>> process_ids(const Root& root) {
  constexpr int kMostTries = 3;
  int error = 0;
  for (int tries = 0; tries < kMostTries; ++tries) {
    std::vector<pid_t> pids;
    Directory folder(root.proc);
    while (const char* name = folder.next())
      if (const auto pid = to_pid(name)) pids.push_back(*pid);
    std::ranges::sort(pids);
    error = folder.error();
    if (error == 0 || error == ENOENT) return pids;
  }
  return fail(error, root.proc);
}

std::string simulated_proc(const Root& root) {
  constexpr std::string_view kBelowProc = "/driver/nvidia";
  std::string_view proc = root.driver;
  if (proc.ends_with(kBelowProc)) proc.remove_suffix(kBelowProc.size());
  return proc != Root{}.proc ? std::string(proc) : "";
}

std::optional<bool> first_pid_namespace(const Root& root) {
  constexpr std::string_view kFirst = "pid:[4026531836]";  // PROC_PID_INIT_INO of the kernel
  // A simulation may say so; else the machine does, whose processes are always real. Who cannot tell sees no further.
  for (const std::string& proc : {simulated_proc(root), root.proc}) {
    if (proc.empty()) continue;
    std::array<char, 64> name{};
    const ssize_t size = ::readlink((proc + "/self/ns/pid").c_str(), name.data(), name.size());
    if (size >= 0) return std::string_view(name.data(), static_cast<std::size_t>(size)) == kFirst;
    if (errno != ENOENT) return std::nullopt;
  }
  return std::nullopt;
}

bool inside_slurm() {
  if (!environment_variable("SLURM_JOB_ID").value_or("").empty()) return true;
  const auto where = read_cgroups(0);
  return where && container_of(*where).starts_with("slurm:");
}

bool inside_slurm_job(std::string_view job) {
  constexpr std::string_view kSlurm = "slurm:";
  if (!job.starts_with(kSlurm)) return false;
  const std::string number = environment_variable("SLURM_JOB_ID").value_or("");
  if (!number.empty() && job.substr(kSlurm.size()) == number) return true;
  const auto where = read_cgroups(0);
  return where && container_of(*where) == job;
}

namespace {

// A guard is root's, or of the user whose process it is.
bool guards(const ProcessEntry& guard, pid_t pid) {
  if (guard.name != kGuardName) return false;
  const auto by = process_user(Root::machine(), guard.pid);
  return by && (*by == 0 || by == process_user(Root::machine(), pid));
}

}  // namespace

bool Fillers::contain(pid_t pid) {
  if (const auto known = known_.find(pid); known != known_.end()) return known->second;
  std::vector<pid_t> line = {pid};
  bool found = false;
  climb(pid, [&](const ProcessEntry& one) {
    if (const auto known = known_.find(one.pid); known != known_.end()) return found = known->second, true;
    line.push_back(one.pid);
    return found = one.pid != pid && guards(one, pid);
  });
  for (const pid_t one : line) known_[one] = found;
  return found;
}

}  // namespace lull
