#include "park/plan.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>
#include <tuple>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

// ---- who

bool is_job(const std::string& job, const std::string& word) {
  if (job.empty()) return false;
  if (job == word || job.starts_with(word + "@")) return true;
  const std::size_t colon = job.find(':');
  return colon != std::string::npos && job.substr(colon + 1) == word;
}

Result<ProcessEntry> entry_of(pid_t pid, const Root& root) {
  auto entry = read_process_entry(pid, root);
  if (!entry) return fail(fmt::format("there is no process {}", pid));
  const auto status = read_file(fmt::format("{}/{}/status", root.proc, pid));
  if (!status) return fail(fmt::format("there is no process {}", pid));
  const auto group = to_unsigned(status_field(*status, "Tgid").value_or(""));
  if (!group) return fail(fmt::format("what process {} is cannot be read", pid));
  if (*group != static_cast<std::uint64_t>(pid))
    return fail(fmt::format("{} is a thread of process {}: name the process", pid, *group));
  return entry;
}

struct Members {
  std::set<ProcessId> names;
  std::optional<ProcessEntry> top;  // the first that was named
  bool exact = false;               // each of them must use a GPU
};

Result<Members> members_of(const ParkTarget& target, const Root& root) {
  Members found;
  const std::vector<ProcessEntry> all = read_all_processes(root);
  for (const ParkTarget::One& one : target.processes) {
    const ProcessEntry entry = TRY(entry_of(one.pid, root));
    if (one.start_ticks && entry.start_ticks != *one.start_ticks)
      return fail(fmt::format("process {} is not the one that was meant: it began at another time", one.pid));
    if (!found.top) found.top = entry;
    found.exact = found.exact || one.alone;
    found.names.insert(entry.id());
    if (one.alone) continue;
    for (const ProcessEntry& below : descendants(all, one.pid)) found.names.insert(below.id());
  }
  return found;
}

// ---- whether

// "570.86.15" -> 570
std::optional<std::uint64_t> major_of(std::string_view version) {
  return to_unsigned(version.substr(0, version.find('.')));
}

Result<> check_driver(const ParkObservations& seen) {
  const std::string& version = seen.snapshot.inventory->driver_version;
  const auto major = major_of(version);
  const unsigned least = seen.machine == "x86_64" ? 570 : seen.machine == "aarch64" ? 595 : 0;
  if (least == 0) return fail(fmt::format("cuda-checkpoint is not known to work on {}", printable(seen.machine)));
  if (!major) return fail("the version of the driver cannot be read");
  if (*major < least)
    return fail(fmt::format("the driver is {}: on {} it must be {} or newer", printable(version), seen.machine, least));
  return {};
}

Result<> check_gpu(const GpuUse& use, const Reading& reading) {
  const std::string gpu = "GPU " + use.device.label();
  if (use.device.vendor != Vendor::nvidia) return fail(gpu + " is not NVIDIA's");
  if (use.device.kind == DeviceKind::mig || reading.mig_mode == true)
    return fail(gpu + " has MIG devices, which cannot be parked");
  if (!use.device.has_own_uuid()) return fail(gpu + " has no UUID of its own, so it could not be found again");
  if (std::ranges::any_of(use.processes, [](const GpuProcess& one) { return one.mps_server; }))
    return fail(gpu + " is shared by MPS, whose clients cannot be parked");
  if (!reading.persistence) return fail("whether " + gpu + " is in persistence mode cannot be read");
  if (!*reading.persistence)
    return fail(gpu + " is not in persistence mode, without which processes died: nvidia-smi -pm 1");
  return {};
}

bool computes(const GpuProcess& one) { return one.compute && !one.mps_server; }

}  // namespace

Result<ParkTarget> ParkTarget::parse(const std::vector<std::string>& words) {
  ParkTarget target;
  for (const std::string& word : words) {
    target.text += (target.text.empty() ? "" : " ") + word;
    const std::size_t at = word.find('@');
    if (const auto pid = to_pid(std::string_view(word).substr(0, at))) {
      One one{.pid = *pid};
      if (at != std::string::npos) {
        std::string_view ticks = std::string_view(word).substr(at + 1);
        one.alone = !ticks.ends_with('+');
        if (!one.alone) ticks.remove_suffix(1);
        one.start_ticks = to_unsigned(ticks);
        if (!one.start_ticks) return fail(fmt::format("'{}': PID@START has a start time in ticks", printable(word)));
      }
      target.processes.push_back(one);
    } else {
      target.job = word;
    }
  }
  if (words.empty() || (!target.job.empty() && words.size() > 1))
    return fail("one job, or one or more processes: lull park 4711, lull park slurm:22");
  return target;
}

// By the kernel's word alone: what a lease says of its holder may be of one that has ended, or never started the job.
bool holds_open(pid_t pid, const std::string& file, const Root& root) {
  struct stat wanted{};
  if (::stat(file.c_str(), &wanted) != 0) return false;
  const std::string process = fmt::format("{}/{}", root.proc, pid);
  Directory descriptors(process + "/fd");
  while (const char* name = descriptors.next()) {
    struct stat one{};
    if (::fstatat(descriptors.fd(), name, &one, 0) != 0) continue;
    if (one.st_ino != wanted.st_ino || one.st_dev != wanted.st_dev) continue;
    const auto text = read_file(fmt::format("{}/fdinfo/{}", process, name));
    const auto flags = text ? status_field(*text, "flags") : std::nullopt;
    if (flags && (std::strtoul(std::string(*flags).c_str(), nullptr, 8) & O_ACCMODE) != O_RDONLY) return true;
  }
  return false;
}

Result<ParkPlan> plan_parking(const ParkTarget& target, const ParkObservations& seen) {
  const Members members = TRY(members_of(target, seen.root));
  const auto is_meant = [&](const GpuProcess& one) {
    return target.job.empty() ? members.names.contains(one.id()) : is_job(one.job, target.job);
  };
  TRY(check_driver(seen));
  std::map<ProcessId, ParkedProcess> found;
  std::string job;
  for (std::size_t i = 0; i < seen.uses.size(); ++i) {
    const GpuUse& use = seen.uses[i];
    const Reading& reading = seen.snapshot.readings[i];
    if (use.device.vendor != Vendor::nvidia || use.asleep || use.empty) continue;
    const std::string gpu = "GPU " + use.device.label();
    if (use.reachable && (!use.listed || use.hides))
      return fail(fmt::format("not all processes on {} can be seen: some of the job may be there", gpu));
    for (const GpuProcess& one : use.processes) {
      if (!computes(one)) continue;
      if (!one.identified &&
          (target.job.empty() ? members.names.contains(one.id()) || one.start_ticks == 0 : one.job.empty()))
        return fail(fmt::format("process {} on {} cannot be identified: it may be of the job", one.pid, gpu));
      if (!one.identified || !is_meant(one)) continue;
      TRY(check_gpu(use, reading));
      if (!one.memory_bytes || reading.memory_estimated)
        return fail(fmt::format("how much memory of {} process {} has cannot be read", gpu, one.pid));
      if (!target.job.empty() && !job.empty() && job != one.job)
        return fail(
            fmt::format("'{}' names several jobs: {}, {}", printable(target.job), printable(job), printable(one.job)));
      job = one.job;
      ParkedProcess& process = found[one.id()];
      process.pid = one.pid;
      process.start_ticks = one.start_ticks;
      process.memory.push_back({use.device.uuid, use.device.label(), *one.memory_bytes});
    }
  }
  if (found.empty()) return fail(fmt::format("no process of {} uses a GPU", printable(target.text)));
  if (members.exact && found.size() != members.names.size())
    return fail("not all of these processes use a GPU (any more)");

  ParkPlan plan;
  for (auto& [id, process] : found) {
    plan.processes.push_back(TRY(Process::open(id)));
    plan.record.processes.push_back(std::move(process));
  }
  const ProcessId top = members.top ? members.top->id() : plan.processes[0].id();
  plan.root = TRY(Process::open(top));
  std::tie(plan.record.root, plan.record.root_start) = top;
  plan.record.name = target.text;

  std::set<ProcessId> above;
  climb(top.first, [&](const ProcessEntry& one) { return above.insert(one.id()), false; }, seen.root);
  above.erase(top);
  std::set<std::string> gpus;
  for (const ParkedProcess& one : plan.record.processes)
    for (const ParkedMemory& part : one.memory) gpus.insert(part.gpu);
  // A job that was left behind has the lease that it inherited: others may have it as well. And who holds a GPU for
  // later uses it by hand.
  const auto runs_under = [&](const LeaseInfo& lease) {
    return std::ranges::any_of(plan.record.processes, [&](const ParkedProcess& one) {
      struct stat process{};
      if (lease.record.kind == LeaseKind::hold)
        return ::stat(fmt::format("{}/{}", seen.root.proc, one.pid).c_str(), &process) == 0 &&
               process.st_uid == lease.owner;
      return holds_open(one.pid, seen.lease_folder + "/" + lease.file, seen.root);
    });
  };
  std::set<std::string> covered;
  std::vector<const LeaseInfo*> others;
  for (const LeaseInfo& lease : seen.leases) {
    if (!gpus.contains(lease.gpu) || !lease.readable) continue;
    const ProcessId holder{lease.record.holder.pid, lease.record.holder.start_ticks};
    const bool own = holder == top || members.names.contains(holder) || found.contains(holder) ||
                     job == "lease:" + lease.record.id || (seen.holder && *seen.holder == holder.first);
    if (own) {
      plan.record.given_leases.push_back({lease.record.id, lease.owner});
      plan.record.share = std::max(plan.record.share, lease.record.share);
      covered.insert(lease.gpu);
    } else if (above.contains(holder)) {
      plan.record.kept_leases.push_back(lease.record.id);
    } else {
      others.push_back(&lease);
    }
  }
  for (const LeaseInfo* lease : others)
    if (!covered.contains(lease->gpu) && runs_under(*lease)) plan.record.kept_leases.push_back(lease->record.id);
  TRY(check_host_memory(plan.record, seen.root));
  return plan;
}

// ---- the machine's memory

namespace {

std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto text = read_file(path);
  return text ? to_unsigned(trim(*text)) : std::nullopt;
}

std::optional<std::uint64_t> stat_of(const std::string& path, std::string_view key) {
  const auto text = read_file(path);
  if (!text) return std::nullopt;
  for (const std::string_view line : split(*text, '\n'))
    if (line.starts_with(key) && line.size() > key.size() && line[key.size()] == ' ')
      return to_unsigned(line.substr(key.size() + 1));
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* used;
  const char* reclaimable;
};
constexpr CgroupFiles kV2{"memory.max", "memory.current", "inactive_file"};
constexpr CgroupFiles kV1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr std::uint64_t kNoLimit = std::uint64_t{1} << 60;

// One cgroup: the files that it has no limit in, or the kernel does not have, limit nothing.
Result<> check_cgroup(const std::string& folder, const CgroupFiles& files, std::uint64_t needed) {
  const auto text = read_file(folder + "/" + files.limit);
  if (!text && text.error().errno_value == ENOENT) return {};
  if (!text) return fail(fmt::format("the memory limit of {} cannot be read", printable(folder)));
  if (trim(*text) == "max") return {};
  const auto limit = to_unsigned(trim(*text));
  if (limit && *limit >= kNoLimit) return {};
  const auto used = number_in(folder + "/" + files.used);
  if (!limit || !used) return fail(fmt::format("the memory limit of {} cannot be read", printable(folder)));
  const std::uint64_t back = stat_of(folder + "/memory.stat", files.reclaimable).value_or(0);
  const std::uint64_t taken = *used > back ? *used - back : 0;
  const std::uint64_t left = *limit > taken ? *limit - taken : 0;
  if (left < needed + kParkMargin)
    return fail(fmt::format("its cgroup has {} of memory left ({}), and {} are needed",
                            format_size(static_cast<double>(left)), printable(folder),
                            format_size(static_cast<double>(needed + kParkMargin))));
  return {};
}

}  // namespace

Result<> check_host_memory(const ParkRecord& record, const Root& root) {
  std::uint64_t all = 0;
  std::map<std::pair<std::string, bool>, std::uint64_t> by_cgroup;  // folder, whether it is of version 2
  for (const ParkedProcess& one : record.processes) {
    std::uint64_t bytes = 0;
    for (const ParkedMemory& part : one.memory) bytes += part.bytes;
    all += bytes;
    const auto text = read_cgroups(one.pid, root);
    if (!text) return fail(fmt::format("the cgroup of process {} cannot be read", one.pid));
    for (const CgroupLine& line : cgroup_lines(*text)) {
      const bool unified = line.controllers.empty();
      if (!unified && std::ranges::count(split(line.controllers, ','), "memory") == 0) continue;
      if (line.path.starts_with("/.."))
        return fail(fmt::format("the cgroup of process {} cannot be seen from here", one.pid));
      const std::string base = root.sys + "/fs/cgroup" + (unified ? "" : "/memory");
      for (std::string path(line.path);; path.resize(path.find_last_of('/'))) {
        if (path == "/") path.clear();
        by_cgroup[{base + path, unified}] += bytes;
        if (path.empty()) break;
      }
    }
  }
  const auto text = read_file(root.proc + "/meminfo");
  std::string_view number = text ? status_field(*text, "MemAvailable").value_or("") : "";
  if (number.ends_with(" kB")) number.remove_suffix(3);
  const auto kib = to_unsigned(number);
  if (!kib) return fail("how much memory the machine has left cannot be read (MemAvailable)");
  const std::uint64_t available = *kib * 1024;
  if (available < all + kParkMargin)
    return fail(fmt::format("the machine has {} of memory left, and {} are needed",
                            format_size(static_cast<double>(available)),
                            format_size(static_cast<double>(all + kParkMargin))));
  for (const auto& [cgroup, bytes] : by_cgroup) TRY(check_cgroup(cgroup.first, cgroup.second ? kV2 : kV1, bytes));
  return {};
}

}  // namespace lull
