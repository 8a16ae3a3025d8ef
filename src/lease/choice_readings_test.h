#pragma once
// Readings made by hand, for the tests of whether a GPU suits.

#include <map>
#include <memory>
#include <span>

#include "lease/choice.h"

namespace lull {

inline constexpr double kMiB = 1 << 20;
inline constexpr double kGiB = 1 << 30;

inline Device gpu() {
  Device device;
  device.uuid = "GPU-0";
  device.name = "NVIDIA GeForce RTX 3090";
  return device;
}

inline Device mig() {
  Device device = gpu();
  device.kind = DeviceKind::mig;
  device.uuid = "MIG-1";
  return device;
}

inline Reading idle() {
  Reading reading;
  reading.set(Metric::util, 0);
  reading.set(Metric::mem_util, 0);
  reading.set(Metric::procs, 0);
  reading.set(Metric::mem_used, 3 * kMiB);
  reading.set(Metric::mem_total, 16 * kGiB);
  reading.set(Metric::mem_free, 16 * kGiB - 300 * kMiB);
  reading.set(Metric::temp, 40);
  reading.set(Metric::power, 30);
  reading.processes.emplace();
  return reading;
}

inline Reading without(std::initializer_list<Metric> metrics, Absence why = Absence::not_supported) {
  Reading reading = idle();
  for (const Metric metric : metrics) reading.miss(metric, why);
  return reading;
}

inline GpuProcess process(pid_t pid, double bytes, bool graphics_only = false) {
  GpuProcess one;
  one.pid = pid;
  one.compute = !graphics_only;
  one.graphics = graphics_only;
  one.memory_bytes = static_cast<std::uint64_t>(bytes);
  return one;
}

// `known`: what /proc says of the processes.
inline Judgement judged(Reading reading, const Constraints& constraints = {}, const Device& device = gpu(),
                        const std::map<pid_t, ProcessInfo>& known = {}) {
  for (GpuProcess& one : reading.processes ? std::span(*reading.processes) : std::span<GpuProcess>())
    if (const auto found = known.find(one.pid); found != known.end())
      one.set_info(std::make_shared<const ProcessInfo>(found->second));
  return judge(device, reading, constraints);
}

inline std::map<pid_t, ProcessInfo> owned_by(uid_t uid, std::initializer_list<pid_t> pids) {
  std::map<pid_t, ProcessInfo> processes;
  for (const pid_t pid : pids) processes[pid].uid = uid;
  return processes;
}

}  // namespace lull
