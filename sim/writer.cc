#include "sim/writer.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <utility>
#include <vector>

#include "nvml/abi.h"
#include "sim/chains.h"
#include "sim/evaluate.h"
#include "sim/files.h"
#include "sim/machine.h"
#include "sim/mapping.h"
#include "sim/models.h"
#include "sim/timeline.h"

namespace lull::sim {
namespace {

long futex_wake_all(std::atomic<std::uint64_t>& word) {
  return ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Copies what is in use, not the empty rest: a change costs microseconds.
void copy_used(Live& to, const Live& from) {
  std::memcpy(static_cast<void*>(&to), &from, offsetof(Live, faults));
  std::copy_n(from.faults, from.fault_count, to.faults);
  std::copy_n(from.loads, from.load_count, to.loads);
  std::copy_n(from.sets, from.set_count, to.sets);
}

// Real time that clients can still ask about: the sample buffer, and a little.
std::int64_t horizon(const State& state, std::int64_t now_ns) {
  const auto kept = static_cast<double>(state.sample_period_ns * (state.sample_capacity + 6));
  return now_ns - static_cast<std::int64_t>(kept * state.speed);
}

void forget_loads(State& state, Live& live, std::int64_t now_ns) {
  const std::int64_t old = horizon(state, now_ns);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < live.load_count; ++i)
    // Those on MIG devices are in no ledger.
    if (end_of(state, true, live.loads[i], now_ns) > old ||
        (live.loads[i].mig != kNone && live.load_count < kMaxLoads / 2))
      live.loads[kept++] = live.loads[i];
  if (kept == live.load_count) return;
  live.load_count = kept;
  chain_loads(live);
}

void forget_faults(Live& live, std::int64_t now_ns) {
  const std::uint32_t before = driver_epoch(live, now_ns);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < live.fault_count; ++i)
    if (live.faults[i].to_ns > now_ns) live.faults[kept++] = live.faults[i];
  live.fault_count = kept;
  live.driver_losses += before - driver_epoch(live, now_ns);
}

// Drops what was set before the horizon, but for the newest of each: that one is still in force there. Of
// more than half a table in that time the older half goes too: sums stay exact, old samples may not.
void forget_sets(const State& state, Live& live, std::int64_t now_ns) {
  std::int64_t old = horizon(state, now_ns);
  if (live.set_count > kMaxSets / 2) old = std::max(old, live.sets[live.set_count - kMaxSets / 2].at_ns);
  std::vector<bool> in_force(live.set_count, false);
  for (const auto& row : live.last_set)
    for (std::uint32_t i : row) {
      while (i != kNone && live.sets[i].at_ns > old) i = live.sets[i].previous;
      if (i != kNone) in_force[i] = true;
    }
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < live.set_count; ++i)
    if (live.sets[i].at_ns > old || in_force[i]) live.sets[kept++] = live.sets[i];
  live.set_count = kept;
  chain_sets(live);
}

class Locked {
 public:
  explicit Locked(int fd) : fd_(fd) {
    while ((failed_ = ::flock(fd_, LOCK_EX) != 0) && errno == EINTR) {
    }
  }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() {
    if (!failed_) ::flock(fd_, LOCK_UN);
  }
  bool failed() const { return failed_; }

 private:
  int fd_;
  bool failed_ = false;
};

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

// A mutex that the kernel marks when its holder dies. False: it cannot be relied on here.
bool begin_watch(Cell& cell) {
  std::memset(static_cast<void*>(&cell.alive), 0, sizeof cell.alive);
  pthread_mutexattr_t attributes;
  if (::pthread_mutexattr_init(&attributes) != 0) return false;
  const bool made = ::pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                    ::pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0 &&
                    ::pthread_mutex_init(&cell.alive, &attributes) == 0;
  ::pthread_mutexattr_destroy(&attributes);
  if (!made || ::pthread_mutex_lock(&cell.alive) != 0) return false;
  unsigned word = 0;
  std::memcpy(&word, &cell.alive, sizeof word);
  if ((word & FUTEX_TID_MASK) == static_cast<unsigned>(::gettid())) return true;
  ::pthread_mutex_unlock(&cell.alive);
  return false;
}

// Our number where the simulation was made. In a namespace below that, /proc tells if it is still the outer one's; else
// 0, and whoever is outside looks for us.
std::uint32_t host_pid(const State& state) {
  std::uint32_t pids[32];
  const auto own = static_cast<std::uint32_t>(::getpid());
  if (pid_namespace_of(0) == state.pid_namespace) return own;
  return pids_of(0, pids, 32) > 1 ? pids[0] : 0;
}

// A cell that no load of `live` has. Best one that no old reader may still look at: it would see a dead load alive
// again.
std::uint32_t free_cell(const State& state, const Live& live) {
  std::vector<bool> taken(kMaxLoads, false);
  const auto take = [&](const Live& one) {
    for (std::uint32_t i = 0; i < std::min(one.load_count, kMaxLoads); ++i)
      if (one.loads[i].cell < kMaxLoads) taken[one.loads[i].cell] = true;
  };
  const auto free = [&] {
    const auto found = std::ranges::find(taken, false);
    return found == taken.end() ? kNone : static_cast<std::uint32_t>(found - taken.begin());
  };
  take(live);
  const std::uint32_t any = free();
  for (const Live& slot : state.slots) take(slot);
  const std::uint32_t best = free();
  return best != kNone ? best : any;
}

// From now on it is ours. It counts as ended until everything in it is: who looks meanwhile must not find the one that
// had it before dead, and write that down of us.
void take_cell(Cell& cell, std::int64_t now_ns) {
  cell.ended_ns.store(std::max<std::int64_t>(now_ns, 1), std::memory_order_seq_cst);
  cell.pid = static_cast<std::uint32_t>(::getpid());
  cell.pid_start_ticks = process_start_ticks(cell.pid);
  cell.watched.store(begin_watch(cell) ? 1 : 0, std::memory_order_release);
  cell.ended_ns.store(0, std::memory_order_release);
}

}  // namespace

Result<> check_gpu(const State& state, std::int64_t gpu) {
  if (gpu >= 0 && gpu < state.gpu_count) return {};
  return fail(state.gpu_count == 1
                  ? fmt::format("there is no GPU {}: this simulation has one, GPU 0", gpu)
                  : fmt::format("there is no GPU {}: this simulation has GPUs 0 to {}", gpu, state.gpu_count - 1));
}

// ---- changing ------------------------------------------------------------------------------------

Result<Writer> Writer::open(const std::string& folder) {
  Writer writer;
  const int why = writer.mapping_.open(folder.c_str());
  if (why == ENOENT) return fail(fmt::format("no simulation in {}", folder));
  if (why == EPROTO)
    return fail(fmt::format("{}/state is not the state of a simulation of this version of lull", folder));
  if (why == EACCES)
    return fail(fmt::format("the simulation in {} is another user's; start one of your own with `lull sim`", folder));
  if (why != 0) return fail(why, fmt::format("opening {}/state", folder));
  if (!writer.mapping_.writable())
    return fail(
        fmt::format("the simulation in {} is another user's: only its owner can change it, and load its GPUs", folder));
  writer.folder_ = folder;
  writer.lock_ = TRY(open_file(folder + "/lock", O_RDWR | O_CREAT, 0600));
  return writer;
}

Result<> Writer::commit(const std::function<Result<>(Live&, std::int64_t)>& edit) {
  const Locked locked(lock_.get());
  if (locked.failed()) return fail(errno, "waiting for another change of the simulation");
  State& state = mapping_.writable_state();
  const std::int64_t now = mapping_.now_ns();
  const std::uint64_t version = state.version.load(std::memory_order_relaxed);
  const Live& current = state.slots[version % kSlots];
  Live& next = state.slots[(version + 1) % kSlots];
  copy_used(next, current);
  // Sums up to now are settled before anything changes: the past stays what it was.
  const Scene scene{state, true, current, now};
  for (unsigned gpu = 0; gpu < state.gpu_count; ++gpu) next.ledger[gpu] = ledger_at(scene, gpu, now);
  forget_loads(state, next, now);
  if (next.fault_count > kMaxFaults / 2) forget_faults(next, now);
  if (next.set_count > kMaxSets / 4 * 3) forget_sets(state, next, now);
  TRY(edit(next, now));
  state.version.store(version + 1, std::memory_order_release);
  show_driver(folder_, state, driver_loaded(next, now));
  refresh_files(folder_, {state, true, next, now});
  futex_wake_all(state.version);             // calls that hang look again
  (void)!::pwrite(lock_.get(), "\n", 1, 0);  // watch_deaths() looks again
  return {};
}

void Writer::show_driver_as_it_is() {
  const Locked locked(lock_.get());
  State& state = mapping_.writable_state();
  const Live& live = state.slots[state.version.load(std::memory_order_acquire) % kSlots];
  if (!locked.failed()) show_driver(folder_, state, driver_loaded(live, mapping_.now_ns()));
}

void Writer::refresh() {
  const Locked locked(lock_.get());
  State& state = mapping_.writable_state();
  if (locked.failed() || !has_file_gpus(state)) return;
  refresh_files(folder_,
                {state, true, state.slots[state.version.load(std::memory_order_acquire) % kSlots], mapping_.now_ns()});
}

Result<> Writer::set(const std::vector<Change>& changes) {
  for (const Change& change : changes) TRY(check_gpu(state(), change.gpu));
  return commit([&](Live& live, std::int64_t now) -> Result<> {
    for (const Change& change : changes) {
      if (live.set_count == kMaxSets) return fail(fmt::format("more than {} values in one change", kMaxSets / 4));
      std::uint32_t& last = live.last_set[change.gpu][static_cast<unsigned>(change.metric)];
      live.sets[live.set_count] = {
          now, change.value, last, static_cast<std::uint16_t>(change.gpu), static_cast<std::uint8_t>(change.metric), 0};
      last = live.set_count++;
    }
    return {};
  });
}

Result<> Writer::add_faults(const std::vector<Fault>& faults) {
  for (const Fault& fault : faults)
    if (fault.gpu != kEveryGpu && fault.gpu != kWholeDriver) TRY(check_gpu(state(), fault.gpu));
  return commit([&](Live& live, std::int64_t now) -> Result<> {
    for (const Fault& fault : faults) {
      if (live.fault_count == kMaxFaults) return fail(fmt::format("more than {} faults at once", kMaxFaults));
      Fault& added = live.faults[live.fault_count++];
      added = fault;
      if (added.from_ns < 0) added.from_ns = now;
    }
    return {};
  });
}

namespace {

// A fault that has begun is over now; one that has not never will be.
void end_faults(Live& live, std::int64_t now, std::int32_t gpu) {
  for (std::uint32_t i = 0; i < live.fault_count; ++i) {
    Fault& fault = live.faults[i];
    if (gpu == kEveryGpu || fault.gpu == gpu) fault.to_ns = std::min(fault.to_ns, std::max(now, fault.from_ns));
  }
}

}  // namespace

Result<> Writer::clear_faults(std::int32_t gpu) {
  if (gpu != kEveryGpu && gpu != kWholeDriver) TRY(check_gpu(state(), gpu));
  return commit([&](Live& live, std::int64_t now) -> Result<> {
    end_faults(live, now, gpu);
    return {};
  });
}

Result<> Writer::end_reset_required(unsigned gpu) {
  TRY(check_gpu(state(), gpu));
  const auto asks = [](const Fault& fault) {
    return fault.code == static_cast<std::int32_t>(nvml::Return::reset_required);
  };
  return commit([&](Live& live, std::int64_t now) -> Result<> {
    for (std::uint32_t i = 0, count = live.fault_count; i < count; ++i) {
      Fault& fault = live.faults[i];
      if (!asks(fault) || fault.to_ns <= now) continue;
      if (fault.gpu == kEveryGpu) {  // the others still ask
        for (unsigned other = 0; other < state().gpu_count; ++other) {
          if (other == gpu) continue;
          if (live.fault_count == kMaxFaults) return fail(fmt::format("more than {} faults at once", kMaxFaults));
          live.faults[live.fault_count] = fault;
          live.faults[live.fault_count++].gpu = static_cast<std::int32_t>(other);
        }
      } else if (fault.gpu != static_cast<std::int32_t>(gpu)) {
        continue;
      }
      fault.to_ns = std::max(now, fault.from_ns);
    }
    return {};
  });
}

Result<> Writer::put_to_sleep(unsigned gpu, bool asleep) {
  TRY(check_gpu(state(), gpu));
  TRY(set_runtime_status(folder_, mapping_.writable_state(), gpu, asleep));
  refresh();
  return {};
}

Result<> Writer::clear() {
  return commit([&](Live& live, std::int64_t now) -> Result<> {
    end_faults(live, now, kEveryGpu);
    for (unsigned gpu = 0; gpu < state().gpu_count; ++gpu)
      for (unsigned metric = 0; metric < kMetrics; ++metric) {
        std::uint32_t& last = live.last_set[gpu][metric];
        if (last == kNone || std::isnan(live.sets[last].value)) continue;
        live.sets[live.set_count] = {
            now, kDerive, last, static_cast<std::uint16_t>(gpu), static_cast<std::uint8_t>(metric), 0};
        last = live.set_count++;
      }
    return {};
  });
}

void Writer::set_time(std::int64_t boot_ns) {
  State& state = mapping_.writable_state();
  state.manual_boot_ns.store(boot_ns, std::memory_order_release);
  futex_wake_all(state.version);  // whoever waits for a time looks at it
}

void Writer::close_simulation() {
  State& state = mapping_.writable_state();
  state.closed.store(1, std::memory_order_release);
  futex_wake_all(state.version);
}

// ---- creating -----------------------------------------------------------------------------------

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

// ---- processes on GPUs --------------------------------------------------------------------------

Result<Hold> Writer::hold(Load load) {
  TRY(check_gpu(state(), load.gpu));
  (void)put_to_sleep(load.gpu, false);  // a context wakes the card, where cards can sleep at all
  const Gpu& gpu = state().gpus[load.gpu];
  if (load.mig != kNone && load.mig >= gpu.mig_count)
    return fail(fmt::format("GPU {} has {} MIG devices, not {}", load.gpu, gpu.mig_count, load.mig + 1));
  if (load.step_count == 0 || load.step_count > kMaxSteps)
    return fail(fmt::format("a load has 1 to {} steps, not {}", kMaxSteps, load.step_count));
  Hold hold;
  if (const int why = hold.mapping_.open(folder_.c_str()); why != 0) return fail(why, "opening the simulation again");
  std::uint32_t taken = kNone;
  auto done = commit([&](Live& live, std::int64_t now) -> Result<> {
    taken = free_cell(state(), live);
    if (live.load_count == kMaxLoads || taken == kNone)
      return fail(fmt::format("more than {} processes on the simulated GPUs", kMaxLoads));
    Cell& cell = hold.mapping_.writable_state().cells[taken];
    take_cell(cell, now);
    load.pid = cell.pid;
    load.host_pid = host_pid(state());
    load.pid_namespace = pid_namespace_of(0);
    load.cell = taken;
    load.start_ns = now;
    live.loads[live.load_count++] = load;
    chain_loads(live);
    return {};
  });
  if (!done) return std::unexpected(std::move(done).error());
  hold.cell_ = taken;
  hold.owner_ = ::getpid();
  return hold;
}

Hold::Hold(Hold&& other) noexcept
    : mapping_(std::move(other.mapping_)), cell_(std::exchange(other.cell_, kNone)), owner_(other.owner_) {}

Hold& Hold::operator=(Hold&& other) noexcept {
  if (this != &other) {
    release();
    mapping_ = std::move(other.mapping_);
    cell_ = std::exchange(other.cell_, kNone);
    owner_ = other.owner_;
  }
  return *this;
}

void Hold::release() {
  const std::uint32_t held = std::exchange(cell_, kNone);
  if (held == kNone || !mapping_) return;
  // A child that was forked has a copy of this; the load is its parent's.
  if (owner_ != ::getpid()) return;
  Cell& cell = mapping_.writable_state().cells[held];
  std::int64_t spans = 0;
  cell.ended_ns.compare_exchange_strong(spans, mapping_.now_ns());
  if (cell.watched.load(std::memory_order_relaxed) != 0) ::pthread_mutex_unlock(&cell.alive);
  mapping_.close();
}

namespace {

constexpr int kRefreshMs = 100;  // of plain files, which follow the time only so

int milliseconds_until(const Mapping& mapping, std::int64_t at_ns) {
  if (at_ns == kForever) return -1;
  const std::int64_t left = boot_time(mapping.state(), at_ns) - boot_now_ns(mapping.state());
  return static_cast<int>(std::clamp<std::int64_t>(left / 1'000'000 + 1, 1, 60'000));
}

}  // namespace

Result<> Writer::watch_deaths(int stop_fd) {
  const Fd changes(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!changes) return fail(errno, "watching the simulation for new processes");
  if (::inotify_add_watch(changes.get(), (folder_ + "/lock").c_str(), IN_MODIFY | IN_DELETE_SELF) < 0)
    return fail(errno, fmt::format("watching {}/lock", folder_));
  for (;;) {
    // All that live now, by a handle that cannot come to mean another process.
    std::vector<Fd> handles;
    std::vector<pollfd> waits{{changes.get(), POLLIN, 0}};
    if (stop_fd >= 0) waits.push_back({stop_fd, POLLIN, 0});
    const std::int64_t now = mapping_.now_ns();
    std::int64_t next = kForever;  // when the driver comes or goes
    mapping_.read([&](const Live& live) {
      for (std::uint32_t i = 0; i < std::min(live.fault_count, kMaxFaults); ++i)
        for (const std::int64_t at : {live.faults[i].from_ns, live.faults[i].to_ns})
          if (unloads_driver(live.faults[i]) && at > now) next = std::min(next, at);
      for (std::uint32_t i = 0; i < std::min(live.load_count, kMaxLoads); ++i) {
        const Load& load = live.loads[i];
        if (load.cell >= kMaxLoads) continue;
        if (end_of(mapping_.writable_state(), true, load, now) <= now) continue;
        Fd handle(static_cast<int>(::syscall(SYS_pidfd_open, host_pid_of(state(), load), 0)));
        if (!handle) continue;
        waits.push_back({handle.get(), POLLIN, 0});
        handles.push_back(std::move(handle));
      }
      return true;
    });
    show_driver_as_it_is();
    refresh();
    const bool by_hand = has_file_gpus(state()) && state().files_live.load(std::memory_order_acquire) == 0;
    const int milliseconds = milliseconds_until(mapping_, next);
    if (::poll(waits.data(), waits.size(), by_hand && milliseconds != 0 ? kRefreshMs : milliseconds) < 0 &&
        errno != EINTR)
      return fail(errno, "waiting for processes to end");
    if (stop_fd >= 0 && waits[1].revents != 0) return {};
    if (waits[0].revents != 0) {
      alignas(inotify_event) char events[4096];
      const ssize_t got = ::read(changes.get(), events, sizeof events);
      if (got > 0 && (reinterpret_cast<const inotify_event*>(events)->mask & (IN_DELETE_SELF | IN_IGNORED)) != 0)
        return {};
    }
  }
}

}  // namespace lull::sim
