#include "sim/library/client.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "sim/library/touch.h"

namespace lull::sim {

namespace {

// One attachment to a simulation. The gate counts the calls inside; its top bit says that new ones may
// come in. The last one out after a shutdown unmaps: the state is never unmapped under a call.
struct Session {
  constexpr Session() : mapping() {}
  void close() {
    if (mapping) touch.end(mapping.writable_state(), mapping.writable());
    mapping.close();
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;
  ~Session() {}  // not at exit: a thread may still be in a call then

  std::atomic<std::uint64_t> gate{0};
  std::uint32_t epoch = 0;  // driver_epoch() at init
  Touch touch;
  union {
    Mapping mapping;
  };
};

constexpr std::uint64_t kOpen = 1ULL << 63;

// More than one only while calls hang in one that was shut down.
constinit Session sessions[8];
constinit std::atomic<Session*> current{nullptr};
constinit pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;  // of init, shutdown and unmapping
constinit unsigned initialised = 0;                              // times nvmlInit is ahead of nvmlShutdown
constinit std::atomic<int> log_fd{-1};

class Changing {
 public:
  Changing() { ::pthread_mutex_lock(&changing); }
  ~Changing() { ::pthread_mutex_unlock(&changing); }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;
};

// A forked child has one thread: no other is inside a call, none holds the lock (and no lock is taken
// before the fork: it must not wait for a thread that hangs).
void after_fork_in_child() {
  ::pthread_mutex_init(&changing, nullptr);
  if (current.load(std::memory_order_relaxed) == nullptr) initialised = 0;
  for (Session& session : sessions) {
    const std::uint64_t gate = session.gate.load(std::memory_order_relaxed) & kOpen;
    session.gate.store(gate, std::memory_order_relaxed);
    session.touch.after_fork();
    if (gate == 0) session.mapping.close();
  }
}

void prepare_once() {
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, [] {
    ::pthread_atfork(nullptr, nullptr, after_fork_in_child);
    const char* path = std::getenv("LULL_SIM_LOG");
    if (path != nullptr && *path != 0)
      log_fd.store(::open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644), std::memory_order_release);
  });
}

Session* unused_session() {
  for (Session& session : sessions)
    if (session.gate.load(std::memory_order_acquire) == 0) return &session;
  return nullptr;
}

// One handle is the address of one byte in here.
char handles[kMaxGpus * (kMaxMig + 1)];

// What init meets: it is a call like any other, on a simulation that it is not attached to yet.
Return meet_init(Mapping& mapping, const char* function, Trouble& trouble, std::uint32_t& epoch) {
  trouble = {};
  if (mapping.state().closed.load(std::memory_order_acquire) != 0) return Return::driver_not_loaded;
  if (mapping.state().nvml_count == 0) return Return::driver_not_loaded;  // a machine without cards of NVIDIA
  if (mapping.state().any_cost != 0) pay(mapping.writable_state(), mapping.writable(), function);
  return mapping.read([&](const Live& live) {
    const std::int64_t now = mapping.now_ns();
    trouble = sim::trouble(live, kWholeDriver, function, false, now);
    epoch = driver_epoch(live, now);
    return static_cast<Return>(trouble.code);
  });
}

template <class StillHangs>
void block(Mapping& mapping, std::int64_t first_ns, StillHangs&& still_hangs) {
  State& state = mapping.writable_state();
  const std::int64_t start = boot_now_ns(state);
  std::int64_t length = first_ns;
  for (;;) {
    const std::int64_t left = start + length - boot_now_ns(state);
    if (left <= 0) return;
    const std::uint64_t version = state.version.load(std::memory_order_acquire);
    length = still_hangs();
    if (length <= 0 || state.closed.load(std::memory_order_acquire) != 0) return;
    // A window that ends by itself changes no version: look now and then as well.
    wait_for_change(state, version, std::min(left, kLookAgainNs));
  }
}

// Sleeps where no signal reaches, as long as `still` says; killable if the file for that is not served.
template <class Still>
void sleep_uninterruptibly(Mapping& mapping, const char* folder, std::int32_t gpu, Still&& still) {
  constexpr std::int64_t kEver = 1'000'000'000'000'000'000;
  if (!read_unanswered(folder, gpu)) block(mapping, kEver, [&]() -> std::int64_t { return still() ? kEver : 0; });
}

Return attach(Mapping& mapping, const char* folder, const char* function, std::uint32_t& epoch) {
  const int missing = folder == nullptr || *folder == 0 ? ENOENT : mapping.open(folder);
  if (missing == EACCES) return Return::no_permission;
  if (missing != 0) return Return::driver_not_loaded;
  Trouble trouble;
  Return result = meet_init(mapping, function, trouble, epoch);
  while (trouble.dstate) {
    sleep_uninterruptibly(mapping, folder, kWholeDriver, [&] {
      Trouble now;
      meet_init(mapping, function, now, epoch);
      return now.dstate;
    });
    result = meet_init(mapping, function, trouble, epoch);
  }
  if (trouble.hang_ns <= 0) return result;
  block(mapping, trouble.hang_ns, [&] {
    Trouble now;
    meet_init(mapping, function, now, epoch);
    return now.hang_ns;
  });
  return meet_init(mapping, function, trouble, epoch);
}

// The driver went away since init: what was before is void.
bool stale(Session& session) {
  if (session.mapping.state().closed.load(std::memory_order_acquire) != 0) return true;
  return session.mapping.read(
      [&](const Live& live) { return driver_epoch(live, session.mapping.now_ns()) != session.epoch; });
}

// With the lock held. New calls find the library shut; the last one inside unmaps.
void detach() {
  Session* session = current.exchange(nullptr);
  initialised = 0;
  if (session == nullptr) return;
  session->touch.end(session->mapping.writable_state(), session->mapping.writable());
  if ((session->gate.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen) == 0) session->close();
}

// With the lock held: one more user of what is there.
bool join() {
  if (initialised == 0) return false;
  if (stale(*current.load(std::memory_order_acquire))) {
    detach();
    return false;
  }
  ++initialised;
  return true;
}

void leave(Session& session) {
  if (session.gate.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  const Changing lock;  // shut down meanwhile, and this was the last call inside
  if (session.gate.load(std::memory_order_acquire) == 0) session.close();
}

// The program is through with the library: dlclose, or its end, when threads may still be inside.
[[gnu::destructor]] void unload() {
  const Changing lock;
  detach();
  const int fd = log_fd.exchange(-1);
  if (fd >= 0) ::close(fd);
}

Return start_unlogged(const char* function) {
  {
    const Changing lock;
    if (join()) return Return::success;
  }
  // Not under the lock: a driver that hangs in init hangs no other thread.
  Mapping mapping;
  std::uint32_t epoch = 0;
  const char* folder = std::getenv("LULL_SIM");
  if (const Return failed = attach(mapping, folder, function, epoch); failed != Return::success) return failed;
  const Changing lock;
  if (join()) return Return::success;
  Session* session = unused_session();
  if (session == nullptr) return Return::insufficient_resources;
  session->mapping = std::move(mapping);
  session->epoch = epoch;
  session->touch.begin(folder);
  session->gate.fetch_or(kOpen, std::memory_order_release);
  current.store(session, std::memory_order_release);
  initialised = 1;
  return Return::success;
}

bool logging() { return log_fd.load(std::memory_order_relaxed) >= 0; }

// One line, one write: lines of many clients in one file stay whole.
void log_call(const char* function, Target target, Return result) {
  char line[192];
  char gpu[24] = "-";
  if (target.gpu >= 0 && target.is_mig())
    std::snprintf(gpu, sizeof gpu, "%d:%u", target.gpu, target.mig);
  else if (target.gpu >= 0)
    std::snprintf(gpu, sizeof gpu, "%d", target.gpu);
  const int length = std::snprintf(line, sizeof line, "%d %s %s %d\n", static_cast<int>(::getpid()), function, gpu,
                                   static_cast<int>(result));
  const int why = errno;
  (void)!::write(log_fd.load(std::memory_order_relaxed), line, static_cast<std::size_t>(length));
  errno = why;
}

// Attached to a simulation for the length of a call.
class Attached {
 public:
  Attached() : session_(current.load(std::memory_order_acquire)) {
    if (session_ == nullptr) return;
    if ((session_->gate.fetch_add(1, std::memory_order_acquire) & kOpen) != 0) return;
    leave(*std::exchange(session_, nullptr));
  }
  ~Attached() {
    if (session_ != nullptr) leave(*session_);
  }
  Attached(const Attached&) = delete;
  Attached& operator=(const Attached&) = delete;

  Session* session() const { return session_; }  // nullptr: the library is not initialised

 private:
  Session* session_;
};

// A call, as far as it matters to what stands in its way.
struct Call {
  const char* function;
  Target target;
  bool about_util;
  bool looks_up = false;
};

// What stands in the way of the call at `now`: a fault, a driver that is gone or was.
Trouble trouble_for(Session& session, const Live& live, const Call& call, std::int64_t now) {
  Trouble found;
  if (session.mapping.state().closed.load(std::memory_order_acquire) != 0) {
    found.code = static_cast<std::int32_t>(Return::driver_not_loaded);
    return found;
  }
  if (live.fault_count != 0) {
    found = trouble(live, call.target.gpu, call.function, call.about_util, now);
    if (found.code != 0) return found;
  }
  if ((live.fault_count | live.driver_losses) != 0 && driver_epoch(live, now) != session.epoch)
    found.code = static_cast<std::int32_t>(Return::uninitialized);
  return found;
}

// Blocks as a driver does that hangs; returns when the time is over or the fault is.
void hang(Session& session, const Call& call, std::int64_t first_ns) {
  Mapping& mapping = session.mapping;
  block(mapping, first_ns, [&] {
    return mapping.read([&](const Live& live) { return trouble_for(session, live, call, mapping.now_ns()).hang_ns; });
  });
}

void sleep_uninterruptibly(Session& session, const Call& call) {
  Mapping& mapping = session.mapping;
  sleep_uninterruptibly(mapping, session.touch.folder(), call.target.gpu, [&] {
    return mapping.read([&](const Live& live) { return trouble_for(session, live, call, mapping.now_ns()).dstate; });
  });
}

bool begins_with_one(const char* function, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return std::strncmp(function, name, std::strlen(name)) == 0; });
}

// Calls that a card still answers of which nothing can be read.
bool tells_identity(const char* function) {
  return begins_with_one(function, {"nvmlDeviceGetHandleBy", "nvmlDeviceGetName", "nvmlDeviceGetUUID",
                                    "nvmlDeviceGetIndex", "nvmlDeviceGetMinor", "nvmlDeviceGetCudaComputeCapability"});
}

// Calls that some Jetsons answer with zeros, and with processes that are none.
bool tells_zeros(const char* function) {
  return begins_with_one(function,
                         {"nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature",
                          "nvmlDeviceGetComputeRunning", "nvmlDeviceGetGraphicsRunning"});
}

Return answered(Session& session, const Call& call, const Answer& answer) {
  Mapping& mapping = session.mapping;
  State& state = mapping.writable_state();
  const unsigned gpu = call.target.gpu < 0 ? 0 : static_cast<unsigned>(call.target.gpu);
  if (call.target.gpu >= 0 && sleeps(state, gpu)) wake(state, mapping.writable(), session.touch.folder(), gpu);
  if (state.any_cost != 0) pay(state, mapping.writable(), call.function);
  for (bool hung = false;;) {
    Trouble trouble;
    std::int64_t attaching = 0;
    const Return result = mapping.read([&](const Live& live) {
      const std::int64_t now = mapping.now_ns();
      trouble = trouble_for(session, live, call, now);
      attaching = 0;
      if (trouble.dstate || (trouble.hang_ns > 0 && !hung)) return Return::success;
      if (trouble.code != 0) return static_cast<Return>(trouble.code);
      const Scene scene{state, mapping.writable(), live, now};
      const Look look{scene, call.target, gpu, state.gpus[gpu], now, trouble.garbage};
      if (call.looks_up) {
        attaching = session.touch.attach(state, mapping.writable(), gpu, look.value(Metric::persistence) > 0);
        if (attaching > 0) return Return::success;
      }
      if (look.has(kIdentityOnly) && call.target.gpu >= 0 && !tells_identity(call.function) &&
          !(look.has(kNvmlZeros) && tells_zeros(call.function)))
        return Return::not_supported;
      return answer(look);
    });
    if (trouble.dstate) {
      sleep_uninterruptibly(session, call);
    } else if (trouble.hang_ns > 0 && !hung) {
      hang(session, call, trouble.hang_ns);
      hung = true;
    } else if (attaching > 0) {
      block(mapping, attaching, [&] { return attaching; });
      if (state.closed.load(std::memory_order_acquire) != 0) return Return::driver_not_loaded;
    } else {
      return result;
    }
  }
}

}  // namespace

Return start(const char* function) {
  prepare_once();
  const Return result = start_unlogged(function);
  if (logging()) log_call(function, Target{}, result);
  return result;
}

Return stop() {
  Return result = Return::success;
  {
    const Changing lock;
    if (initialised == 0)
      result = Return::uninitialized;
    else if (--initialised == 0)
      detach();
  }
  if (logging()) log_call("nvmlShutdown", Target{}, result);
  return result;
}

Device handle_of(unsigned gpu, std::uint32_t mig) {
  const std::size_t at = std::size_t{gpu} * (kMaxMig + 1) + (mig == kNone ? 0 : mig + 1);
  return reinterpret_cast<Device>(&handles[at]);
}

bool target_of(Device device, Target& target) {
  const auto first = reinterpret_cast<std::uintptr_t>(&handles[0]);
  const auto at = reinterpret_cast<std::uintptr_t>(device);
  if (at < first || at >= first + sizeof handles) return false;
  const std::size_t offset = at - first;
  target.gpu = static_cast<std::int32_t>(offset / (kMaxMig + 1));
  const std::size_t mig = offset % (kMaxMig + 1);
  target.mig = mig == 0 ? kNone : static_cast<std::uint32_t>(mig - 1);
  return true;
}

Return on_target(const char* function, Target target, bool about_util, Answer answer) {
  const Attached attached;
  Session* session = attached.session();
  const Return result =
      session == nullptr ? Return::uninitialized : answered(*session, {function, target, about_util}, answer);
  if (logging()) log_call(function, target, result);
  return result;
}

Return on_lookup(const char* function, Target target, Answer answer) {
  const Attached attached;
  Session* session = attached.session();
  const Return result =
      session == nullptr ? Return::uninitialized : answered(*session, {function, target, false, true}, answer);
  if (logging()) log_call(function, target, result);
  return result;
}

Return on_driver(const char* function, Answer answer) { return on_target(function, Target{}, false, answer); }

Return on_device(const char* function, Device device, Answer answer, bool about_util) {
  Target target;
  if (!target_of(device, target)) return on_driver(function, [](const Look&) { return Return::invalid_argument; });
  return on_target(function, target, about_util, [&](const Look& look) {
    if (look.gpu >= look.scene.state.nvml_count) return Return::invalid_argument;
    if (target.is_mig() && (target.mig >= look.card.mig_count || !look.mig())) return Return::invalid_argument;
    return answer(look);
  });
}

Return on_gpu(const char* function, Device device, Answer answer, bool about_util) {
  const auto whole = [&](const Look& look) { return look.target.is_mig() ? Return::not_supported : answer(look); };
  return on_device(function, device, whole, about_util);
}

}  // namespace lull::sim
