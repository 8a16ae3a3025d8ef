#include "sim/writer.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstring>

#include "nvml/abi.h"
#include "sim/chains.h"
#include "sim/evaluate.h"
#include "sim/files.h"
#include "sim/machine.h"

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

}  // namespace lull::sim
