#include "sim/library/processes.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

using namespace lull::sim;
namespace nvml = lull::nvml;

namespace lull::sim {

unsigned list_processes(const Look& look, std::uint32_t kind, GpuProcess* out, unsigned capacity) {
  unsigned count = 0;
  if (look.has(kNvmlZeros)) {  // numbers of no process
    for (const std::uint32_t pid : {2989113344U, 43690U})
      if (count < capacity) out[count++] = {pid, nvml::kNoInstance, nvml::kNoInstance, 0, 0};
    return count;
  }
  each_load(look.scene, look.gpu, look.now, [&](const Load& load) {
    if (kind != 0 && (load.kind & kind) == 0) return;
    if (look.target.is_mig() && load.mig != look.target.mig) return;
    const std::uint32_t pid = pid_for_caller(look, load);
    if (pid == 0) return;
    const Step& step = step_at(load, look.now);
    const bool mig = load.mig < kMaxMig && look.mig();
    GpuProcess process{pid, mig ? look.card.mig[load.mig].gpu_instance : nvml::kNoInstance,
                       mig ? look.card.mig[load.mig].compute_instance : nvml::kNoInstance,
                       load.memory_unknown != 0 ? nvml::kValueNotAvailable : step.memory, step.util};
    GpuProcess* const end = out + std::min(count, capacity);
    GpuProcess* const same = std::find_if(out, end, [&](const GpuProcess& other) {
      return other.pid == process.pid && other.gpu_instance == process.gpu_instance;
    });
    if (same != end) {
      same->util += process.util;
      const bool known = same->memory != nvml::kValueNotAvailable && process.memory != nvml::kValueNotAvailable;
      same->memory = known ? same->memory + process.memory : nvml::kValueNotAvailable;
      return;
    }
    if (count < capacity) out[count] = process;
    ++count;
  });
  return count;
}

bool process_name(const Scene& scene, std::uint32_t pid, char* out, std::size_t size) {
  const Load* said = nullptr;
  for (unsigned i = 0; i < std::min(scene.live.load_count, kMaxLoads) && said == nullptr; ++i)
    if (scene.live.loads[i].pid == pid) said = &scene.live.loads[i];
  if (said != nullptr && said->name[0] != 0) {
    std::snprintf(out, size, "%.*s", static_cast<int>(sizeof said->name), said->name);
    return true;
  }
  char path[32];
  std::snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  const ssize_t got = fd < 0 ? -1 : ::read(fd, out, size - 1);
  if (fd >= 0) ::close(fd);
  if (got <= 0) return false;
  out[got] = 0;
  return out[0] != 0;
}

namespace {

constexpr unsigned kCapacity = kMaxLoads;

// The protocol of every list: too little capacity says how much is needed.
template <class Entry, class Fill>
Return list(const char* function, Device device, std::uint32_t kind, unsigned* count, Entry* entries, Fill&& fill) {
  if (count == nullptr) return on_device(function, device, [](const Look&) { return Return::invalid_argument; });
  const unsigned capacity = entries == nullptr ? 0 : *count;
  return on_device(function, device, [&](const Look& look) {
    if (look.has(kNoProcessLists)) return Return::not_supported;
    GpuProcess listed[kCapacity];
    const unsigned found = std::min(list_processes(look, kind, listed, kCapacity), kCapacity);
    *count = found;
    if (found > capacity) return Return::insufficient_size;
    for (unsigned i = 0; i < found; ++i) fill(entries[i], listed[i]);
    return Return::success;
  });
}

Return list_v1(const char* function, Device device, std::uint32_t kind, unsigned* count, nvml::ProcessV1* out) {
  return list(function, device, kind, count, out,
              [](nvml::ProcessV1& entry, const GpuProcess& process) { entry = {process.pid, process.memory}; });
}

Return list_v2(const char* function, Device device, std::uint32_t kind, unsigned* count, nvml::Process* out) {
  return list(function, device, kind, count, out, [](nvml::Process& entry, const GpuProcess& process) {
    entry = {process.pid, process.memory, process.gpu_instance, process.compute_instance};
  });
}

// The mean of what a process asked for from `from` to now, or since it began.
double mean_util(const Look& look, const GpuProcess& process, std::int64_t from) {
  double sum = 0;
  each_load(look.scene, look.gpu, look.now, [&](const Load& load) {
    if (pid_for_caller(look, load) != process.pid) return;
    constexpr std::int64_t kParts = 64;
    const std::int64_t begin = std::max(from, load.start_ns);
    for (std::int64_t i = 0; i < kParts; ++i)
      sum += step_at(load, begin + (look.now - begin) / kParts * i).util / static_cast<double>(kParts);
  });
  return sum;
}

// Percentages that are none, a sample of an hour ago, and one of a process that is not there.
Return process_nonsense(const GpuProcess* listed, unsigned found, unsigned long long stamp,
                        nvml::ProcessUtilization* out, unsigned* count, unsigned capacity) {
  *count = found + 2;
  if (found + 2 > capacity) return Return::insufficient_size;
  for (unsigned i = 0; i < found; ++i) out[i] = {listed[i].pid, stamp, 37100, 4294967295, 0, 0};
  out[found] = {found > 0 ? listed[0].pid : 1, stamp - 3'600'000'000, 50, 20, 0, 0};
  out[found + 1] = {4194303, stamp, 50, 20, 0, 0};
  return Return::success;
}

}  // namespace
}  // namespace lull::sim

#define LULL_LISTS(which, kind)                                                                                      \
  LULL_EXPORT Return nvmlDeviceGet##which##RunningProcesses(Device device, unsigned* count, nvml::ProcessV1* out) {  \
    return list_v1(__func__, device, kind, count, out);                                                              \
  }                                                                                                                  \
  LULL_EXPORT Return nvmlDeviceGet##which##RunningProcesses_v2(Device device, unsigned* count, nvml::Process* out) { \
    return list_v2(__func__, device, kind, count, out);                                                              \
  }                                                                                                                  \
  LULL_EXPORT Return nvmlDeviceGet##which##RunningProcesses_v3(Device device, unsigned* count, nvml::Process* out) { \
    return list_v2(__func__, device, kind, count, out);                                                              \
  }
LULL_LISTS(Compute, kCompute | kMps)  // who works through MPS is in both lists
LULL_LISTS(Graphics, kGraphics)
LULL_LISTS(MPSCompute, kMps)
#undef LULL_LISTS

LULL_EXPORT Return nvmlDeviceGetProcessUtilization(Device device, nvml::ProcessUtilization* out, unsigned* count,
                                                   unsigned long long last_seen) {
  if (count == nullptr) return on_gpu(__func__, device, [](const Look&) { return Return::invalid_argument; });
  const unsigned capacity = out == nullptr ? 0 : *count;
  return on_gpu(
      __func__, device,
      [&](const Look& look) {
        if (look.mig() || look.has(kNoUtil | kNoProcessLists)) return Return::not_supported;
        BufferedSample newest[1];
        const State& state = look.scene.state;
        const std::int64_t recent = boot_time(state, look.now) - state.sample_period_ns - 1;
        *count = 0;
        if (buffered_samples(look.scene, look.gpu, Metric::util, recent, newest, 1) == 0) return Return::not_found;
        const auto stamp = static_cast<unsigned long long>(sample_stamp_us(state, newest[0].end_boot_ns));
        if (stamp <= last_seen) return Return::not_found;
        GpuProcess listed[kCapacity];
        unsigned found = std::min(list_processes(look, 0, listed, kCapacity), kCapacity);
        // Of the time since the stamp that the caller has seen, as far as the samples reach back. Who did nothing is
        // not listed.
        const std::int64_t kept = std::int64_t{state.sample_capacity} * state.sample_period_ns;
        const auto seen = static_cast<std::int64_t>(std::min<unsigned long long>(last_seen, stamp));
        const auto asked = (static_cast<std::int64_t>(stamp) - seen) * 1000;
        const std::int64_t span = std::max(state.sample_period_ns, std::min(asked, kept));
        const std::int64_t from = look.now - static_cast<std::int64_t>(static_cast<double>(span) * state.speed);
        for (unsigned i = 0; i < found; ++i) listed[i].util = mean_util(look, listed[i], from);
        const GpuProcess* const end =
            std::remove_if(listed, listed + found, [](const GpuProcess& one) { return !(one.util > 0); });
        found = static_cast<unsigned>(end - listed);
        if (look.garbage) return process_nonsense(listed, found, stamp, out, count, capacity);
        if (found == 0) return Return::not_found;
        *count = found;
        if (found > capacity) return Return::insufficient_size;
        for (unsigned i = 0; i < found; ++i) {
          const auto util = static_cast<unsigned>(std::clamp(listed[i].util + 0.5, 0.0, 100.0));
          out[i] = {listed[i].pid, stamp, util, util * 2 / 5, 0, 0};
        }
        return Return::success;
      },
      true);
}
