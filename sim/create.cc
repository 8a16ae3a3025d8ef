// The first half of writer.h: laying out a new simulation's state file.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <utility>
#include <vector>

#include "nvml/abi.h"
#include "sim/chains.h"
#include "sim/mapping.h"
#include "sim/models.h"
#include "sim/timeline.h"
#include "sim/writer.h"

namespace lull::sim {
namespace {

Result<> check_plan(const Plan& plan) {
  if (plan.gpus.empty()) return fail("a simulation needs at least one GPU");
  if (plan.gpus.size() > kMaxGpus)
    return fail(fmt::format("{} GPUs are too many: at most {}", plan.gpus.size(), kMaxGpus));
  if (!(plan.speed > 0) || plan.speed > 1e6) return fail("speed must be above 0 and at most 1000000");
  if (plan.faults.size() > kMaxFaults)
    return fail(fmt::format("{} faults are too many: at most {}", plan.faults.size(), kMaxFaults));
  if (plan.processes.size() > kMaxLoads)
    return fail(fmt::format("{} processes are too many: at most {}", plan.processes.size(), kMaxLoads));
  if (plan.manual_boot_ns.value_or(1) <= 0) return fail("time by hand begins above 0");
  if (plan.sample_period_ns < 1'000'000) return fail("a sample period is at least 1ms");
  if (plan.sample_capacity == 0 || plan.sample_capacity > kMaxSampleCapacity)
    return fail(fmt::format("a sample buffer holds 1 to {} samples", kMaxSampleCapacity));
  for (const Load& load : plan.processes)
    if (load.gpu >= plan.gpus.size())
      return fail(fmt::format("process {} is on GPU {}, which is not there", load.pid, load.gpu));
  if (!std::ranges::is_partitioned(plan.gpus, [](const GpuPlan& gpu) { return in_nvml(gpu.gpu.vendor); }))
    return fail("GPUs that NVML knows come before the others");
  for (std::size_t g = 0; g < plan.gpus.size(); ++g)
    for (unsigned m = 0; m < kMetrics; ++m) {
      const auto& frames = plan.gpus[g].keyframes[m];
      if (!std::ranges::is_sorted(frames, {}, &Keyframe::at_ns))
        return fail(fmt::format("GPU {}: the timeline of {} goes back in time", g, kMetricNames[m]));
    }
  return {};
}

std::uint8_t distance(const Gpu& one, const Gpu& other, std::size_t i, std::size_t j) {
  if (i == j) return nvml::kTopologyInternal;
  if (one.numa_node != other.numa_node || i / 8 != j / 8) return nvml::kTopologySystem;
  return i / 2 == j / 2 ? nvml::kTopologySingle : nvml::kTopologyNode;
}

void fill_topology(State& state, const Plan& plan) {
  for (std::size_t i = 0; i < plan.gpus.size(); ++i)
    for (std::size_t j = 0; j < plan.gpus.size(); ++j)
      state.topology[i][j] = i < plan.topology.size() && j < plan.topology[i].size()
                                 ? plan.topology[i][j]
                                 : distance(plan.gpus[i].gpu, plan.gpus[j].gpu, i, j);
}

void fill_gpus(State& state, Keyframe* tail, const Plan& plan) {
  std::uint32_t next = 0;
  for (std::size_t g = 0; g < plan.gpus.size(); ++g) {
    const GpuPlan& from = plan.gpus[g];
    Gpu& gpu = state.gpus[g];
    gpu = from.gpu;
    state.touched[g].asleep.store(gpu.begins_asleep, std::memory_order_relaxed);
    for (unsigned m = 0; m < kMetrics; ++m) {
      gpu.timeline[m] = {next, static_cast<std::uint32_t>(from.keyframes[m].size()), from.repeat_ns[m], 0, 0};
      std::ranges::copy(from.keyframes[m], tail + next);
      next += gpu.timeline[m].count;
      add_up(tail, gpu.timeline[m]);
    }
  }
}

void fill_live(Live& live, const Plan& plan) {
  live.fault_count = static_cast<std::uint32_t>(plan.faults.size());
  std::ranges::copy(plan.faults, live.faults);
  live.load_count = static_cast<std::uint32_t>(plan.processes.size());
  std::ranges::copy(plan.processes, live.loads);
  for (std::uint32_t i = 0; i < live.load_count; ++i) live.loads[i].cell = kNone;
  chain_loads(live);
  chain_sets(live);
}

void fill_costs(State& state, const Plan& plan) {
  std::ranges::copy(plan.cost_ns, state.cost_ns);
  state.any_cost = std::ranges::any_of(plan.cost_ns, [](std::int64_t cost) { return cost > 0; }) ? 1 : 0;
  pthread_mutexattr_t attributes;
  ::pthread_mutexattr_init(&attributes);
  ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  ::pthread_mutex_init(&state.driver_lock, &attributes);
  ::pthread_mutexattr_destroy(&attributes);
}

// Which bytes of the file are used: what GPUs that are not there would have stays a hole.
std::vector<std::pair<off_t, off_t>> used_parts(std::size_t gpus, std::size_t size) {
  const auto at = [](std::size_t offset) { return static_cast<off_t>(offset); };
  constexpr std::size_t kTopology = offsetof(State, topology);
  return {{0, at(offsetof(State, gpus) + gpus * sizeof(Gpu))},
          {at(kTopology), at(kTopology + gpus * sizeof(State::topology[0]))},
          {at(offsetof(State, pid_namespace)), at(size)}};
}

}  // namespace

Result<> create_state(const std::string& folder, const Plan& plan) {
  TRY(check_plan(plan));
  std::size_t frames = 0;
  for (const GpuPlan& gpu : plan.gpus)
    for (const auto& each : gpu.keyframes) frames += each.size();
  if (frames > 200'000'000) return fail("the timelines have more than 200 million keyframes");
  const std::size_t size = sizeof(State) + frames * sizeof(Keyframe);
  const std::string unfinished = folder + "/state.new";
  const auto trouble = [&](const std::string& doing) {
    const int why = errno;
    ::unlink(unfinished.c_str());
    return fail(why, doing);
  };
  TRY(open_file(folder + "/lock", O_RDWR | O_CREAT, 0600));
  const Fd file = TRY(open_file(unfinished, O_RDWR | O_CREAT | O_TRUNC, 0600));
  if (::geteuid() == 0 && ::fchmod(file.get(), 0644) != 0) return fail(errno, unfinished);  // others see root's
  // Space for the tail is taken now: a full disk must say so here, not kill clients with SIGBUS later.
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0) return trouble("making " + unfinished);
  for (const auto& [from, to] : used_parts(plan.gpus.size(), size))
    if (const int why = ::posix_fallocate(file.get(), from, to - from); why != 0 && why != EOPNOTSUPP) {
      errno = why;
      return trouble("making room for " + unfinished);
    }
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return trouble("mapping " + unfinished);
  State& state = *static_cast<State*>(at);
  state.magic = kMagic;
  state.layout = kLayout;
  state.gpu_count = static_cast<std::uint32_t>(plan.gpus.size());
  state.nvml_count = static_cast<std::uint32_t>(
      std::ranges::count_if(plan.gpus, [](const GpuPlan& gpu) { return in_nvml(gpu.gpu.vendor); }));
  state.file_size = size;
  state.speed = plan.speed;
  state.sample_period_ns = plan.sample_period_ns;
  state.sample_lag_ns = plan.sample_lag_ns;
  state.sample_capacity = plan.sample_capacity;
  state.sample_epoch = plan.sample_epoch ? 1 : 0;
  state.keyframe_count = static_cast<std::uint32_t>(frames);
  const std::string driver = plan.driver_version.empty() ? std::string(kDriverVersion) : plan.driver_version;
  copy_text(state.driver_version, driver);
  copy_text(state.nvml_version, "12." + driver);
  state.cuda_version = 12020;
  fill_gpus(state, reinterpret_cast<Keyframe*>(&state + 1), plan);
  fill_topology(state, plan);
  fill_costs(state, plan);
  state.pid_namespace = pid_namespace_of(0);
  fill_live(state.slots[0], plan);
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  state.start_wall_ns = std::int64_t{wall.tv_sec} * 1'000'000'000 + wall.tv_nsec;
  state.start_boot_ns = boot_now_ns();
  if (plan.manual_boot_ns) {
    state.start_boot_ns = state.start_wall_ns = *plan.manual_boot_ns;
    state.manual_boot_ns = *plan.manual_boot_ns;
  }
  ::munmap(at, size);
  if (::rename(unfinished.c_str(), (folder + "/state").c_str()) != 0) return trouble("making " + folder + "/state");
  return {};
}

}  // namespace lull::sim
