#include "sense/nvml/tenants.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "sense/device_file.h"

namespace lull {
namespace {

using nvml::Return;

constexpr std::string_view kFirstPidNamespace = "pid:[4026531836]";  // PROC_PID_INIT_INO of the kernel
constexpr std::string_view kMpsServer = "nvidia-cuda-mps-server";
constexpr unsigned kMostInAList = 1U << 16;
constexpr std::size_t kCommSize = 15;  // the kernel keeps no more of a name
constexpr std::string_view kBelowProc = "/driver/nvidia";

bool holds(const std::string& process, const FileId& wanted) {
  const std::unique_ptr<DIR, int (*)(DIR*)> files(::opendir((process + "/fd").c_str()), ::closedir);
  if (files == nullptr) return false;
  while (const dirent* entry = ::readdir(files.get()))
    if (entry->d_name[0] != '.' && file_id(::dirfd(files.get()), entry->d_name) == wanted) return true;
  return false;
}

// The kernel cuts the name, and that of the server's own control daemon begins alike.
bool is_mps_server(const std::string& process) {
  const auto comm = read_file(AT_FDCWD, process + "/comm", 64);
  if (!comm || !std::string_view(*comm).starts_with(kMpsServer.substr(0, kCommSize))) return false;
  const auto line = read_file(AT_FDCWD, process + "/cmdline", 4096);
  if (!line || line->empty()) return true;  // not ours to read: its name has to do
  const std::string_view program = std::string_view(*line).substr(0, line->find('\0'));
  return program.substr(program.rfind('/') + 1) == kMpsServer;
}

// A process may be in several lists, on one GPU or MIG instance it is one tenant.
void add(std::vector<Tenant>& tenants, unsigned pid, unsigned long long used, unsigned instance, bool compute) {
  const auto gpu_instance = instance == nvml::kNoInstance ? std::nullopt : std::optional(instance);
  const auto same = [&](const Tenant& tenant) {
    return tenant.pid == static_cast<pid_t>(pid) && tenant.gpu_instance == gpu_instance;
  };
  auto tenant = std::ranges::find_if(tenants, same);
  if (tenant == tenants.end()) {
    tenants.emplace_back().pid = static_cast<pid_t>(pid);
    tenant = tenants.end() - 1;
    tenant->gpu_instance = gpu_instance;
  }
  (compute ? tenant->compute : tenant->graphics) = true;
  if (used != nvml::kValueNotAvailable && plausible(Metric::mem_used, static_cast<double>(used)))
    tenant->memory_bytes = std::max(tenant->memory_bytes.value_or(0), std::uint64_t{used});
}

// Asks for the lists of one device.
class Lists {
 public:
  Lists(nvml::Device handle, NvmlRoom& room, std::vector<Tenant>& tenants)
      : handle_(handle), room_(room), tenants_(tenants) {}

  template <class New, class Old>
  Return ask(New* third, New* second, Old* first, bool compute) {
    unsigned count = 0;
    Return code = list(third != nullptr ? third : second, room_.processes, count);
    if (code == Return::success) {
      for (unsigned i = 0; i < count; ++i) {
        const nvml::Process& process = room_.processes[i];
        add(tenants_, process.pid, process.used_memory, process.gpu_instance, compute);
      }
    } else if (code == Return::function_not_found) {
      code = list(first, room_.old_processes, count);
      for (unsigned i = 0; code == Return::success && i < count; ++i)
        add(tenants_, room_.old_processes[i].pid, room_.old_processes[i].used_memory, nvml::kNoInstance, compute);
    }
    return code;
  }

 private:
  // A list whose size is not known before: the room grows until it fits.
  template <class Entry, class Function>
  Return list(Function* function, std::vector<Entry>& room, unsigned& count) {
    Return code = Return::function_not_found;
    if (function == nullptr) return code;
    for (int tries = 0; tries < 4; ++tries) {
      if (room.size() < 64) room.resize(64);
      // A driver that writes longer entries than it should must not write behind the end.
      count = static_cast<unsigned>(room.size() / 2);
      code = function(handle_, &count, room.data());
      if (code != Return::insufficient_size) break;
      if (count > kMostInAList) return Return::unknown;  // nonsense
      room.resize(std::max<std::size_t>(room.size() * 2, (count + std::size_t{16}) * 2));
    }
    if (code == Return::success) count = std::min(count, static_cast<unsigned>(room.size()));
    return code;
  }

  nvml::Device handle_;
  NvmlRoom& room_;
  std::vector<Tenant>& tenants_;
};

// What /proc says of each: whether the number is a process that we can see, and whether it serves others.
void look_at(std::vector<Tenant>& tenants, const Device& device, const NvmlRoom& room) {
  std::optional<FileId> file;
  const bool numbers_are_ours = room.first_namespace.value_or(false);
  if (!numbers_are_ours && device.minor)
    file = file_id(AT_FDCWD, (room.root.dev + "/nvidia" + std::to_string(*device.minor)).c_str());
  for (Tenant& tenant : tenants) {
    const std::string process = room.root.proc + "/" + std::to_string(tenant.pid);
    tenant.here = numbers_are_ours ? ::access(process.c_str(), F_OK) == 0 : file && holds(process, *file);
    tenant.mps_server = tenant.here && tenant.compute && is_mps_server(process);
  }
}

}  // namespace

bool first_pid_namespace(const Root& root) {
  std::string_view simulated = root.driver;
  if (simulated.ends_with(kBelowProc)) simulated.remove_suffix(kBelowProc.size());
  // A simulation may say so; else the machine does, whose processes are always real. Who cannot tell sees no further.
  for (const std::string& proc : {std::string(simulated), root.proc}) {
    std::array<char, 64> name{};
    const ssize_t size = ::readlink((proc + "/self/ns/pid").c_str(), name.data(), name.size());
    if (size >= 0) return std::string_view(name.data(), static_cast<std::size_t>(size)) == kFirstPidNamespace;
  }
  return false;
}

Return list_tenants(const NvmlCalls& calls, nvml::Device handle, const Device& device, bool all, NvmlRoom& room,
                    TenantList& list) {
  if (!room.first_namespace) room.first_namespace = first_pid_namespace(room.root);
  list.tenants.clear();
  list.all = all;
  Lists lists(handle, room, list.tenants);
  const Return code = lists.ask(calls.DeviceGetComputeRunningProcesses_v3, calls.DeviceGetComputeRunningProcesses_v2,
                                calls.DeviceGetComputeRunningProcesses, true);
  list.absence = absence_of(code);
  if (code != Return::success) return code;
  look_at(list.tenants, device, room);
  const std::size_t compute = list.tenants.size();
  if (all || std::ranges::any_of(list.tenants, &Tenant::mps_server))
    lists.ask(calls.DeviceGetMPSComputeRunningProcesses_v3, calls.DeviceGetMPSComputeRunningProcesses_v2,
              calls.DeviceGetMPSComputeRunningProcesses, true);
  if (all)
    lists.ask(calls.DeviceGetGraphicsRunningProcesses_v3, calls.DeviceGetGraphicsRunningProcesses_v2,
              calls.DeviceGetGraphicsRunningProcesses, false);
  if (list.tenants.size() != compute) look_at(list.tenants, device, room);
  return code;
}

std::size_t working_tenants(const std::vector<Tenant>& tenants) {
  return static_cast<std::size_t>(
      std::ranges::count_if(tenants, [](const Tenant& tenant) { return tenant.compute && !tenant.mps_server; }));
}

}  // namespace lull
