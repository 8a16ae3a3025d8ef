#pragma once
// A client's view of a running simulation: maps `$LULL_SIM/state` and reads it
// without ever waiting for a writer. Used by the simulated driver library, which
// is loaded into other people's programs: no exceptions, no allocation, no
// dependency but libc.

#include <cstdint>

#include "sim/state.h"

namespace lull::sim {

// What was read before this is read before anything after it. (The thread sanitizer cannot follow a
// fence and refuses it; the mapping is not its business anyway.)
inline void after_reading() {
#ifdef __SANITIZE_THREAD__
  std::atomic_signal_fence(std::memory_order_acquire);
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping() { close(); }

  // 0, or an errno: ENOENT (no such simulation), EPROTO (not a state file, or of another layout).
  int open(const char* folder);
  void close();
  explicit operator bool() const { return state_ != nullptr; }

  const State& state() const { return *state_; }
  State& writable_state() { return *state_; }
  bool writable() const { return writable_; }

  // Scenario time now.
  std::int64_t now_ns() const;

  // Calls read(const Live&) on a slot that held still meanwhile. What it reads from a slot that did
  // not is thrown away, but must do no harm: counts and indices in it may be anything.
  template <class Read>
  auto read(Read&& function) const {
    for (;;) {
      const std::uint64_t seen = state_->version.load(std::memory_order_acquire);
      auto result = function(state_->slots[seen % kSlots]);
      after_reading();
      if (state_->version.load(std::memory_order_relaxed) - seen < kSlots - 1) return result;
    }
  }

 private:
  State* state_ = nullptr;
  std::uint64_t size_ = 0;
  bool writable_ = false;
};

std::int64_t boot_now_ns();                    // of the real machine
std::int64_t boot_now_ns(const State& state);  // as the simulated one has it
std::int64_t scenario_time(const State& state, std::int64_t boot_ns);
std::int64_t boot_time(const State& state, std::int64_t scenario_ns);

// The moment a load ended (kForever: it lives). Finds out about a death, and writes it down as of `now_ns`.
std::int64_t end_of(State& state, bool writable, const Load& load, std::int64_t now_ns);

// When a process started, in ticks since boot: with its pid this names it for good. 0: no such process.
std::uint64_t process_start_ticks(std::uint32_t pid);

// The inode of a process's PID namespace (0: our own); 0: it cannot be read.
std::uint64_t pid_namespace_of(std::uint32_t pid);

// The numbers of a process (0: our own) in the namespaces it is in, from that of /proc inwards (NSpid). How many.
unsigned pids_of(std::uint32_t pid, std::uint32_t* out, unsigned capacity);

// The number in the namespace `ours` of a load's process; 0: it is not in that one or below, or our /proc is of
// another.
std::uint32_t pid_below(const Load& load, std::uint64_t ours);

// The number where the simulation was made. A load in a namespace with a /proc of its own cannot tell: it is looked
// for, and where that fails its own number has to do.
std::uint32_t host_pid_of(const State& state, const Load& load);

}  // namespace lull::sim
