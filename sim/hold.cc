// The second half of writer.h: processes on the GPUs, from the moment they hold one
// until they die.
#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "sim/chains.h"
#include "sim/evaluate.h"
#include "sim/files.h"
#include "sim/writer.h"

namespace lull::sim {

namespace {

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

// One that no load of `live` has. Best one of which nobody knows who still looks at what was before: the dead of then
// would be seen alive again.
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
