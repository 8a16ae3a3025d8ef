#pragma once
// What a client does to the machine by looking at it: it wakes a GPU that slept,
// attaches one that it finds for the first time, is written down as holding it,
// and pays for its calls. One Touch for each time that the library is initialised.

#include <atomic>
#include <cstdint>

#include "sim/mapping.h"
#include "sim/state.h"

namespace lull::sim {

class Touch {
 public:
  constexpr Touch() = default;
  Touch(const Touch&) = delete;
  Touch& operator=(const Touch&) = delete;

  void begin(const char* folder);
  const char* folder() const { return folder_; }

  // Real nanoseconds until this process has the GPU attached; the first call for it begins that. 0: it has.
  std::int64_t attach(State& state, bool writable, unsigned gpu, bool persistent);

  // Holds nothing any more. May be called more than once.
  void end(State& state, bool writable);
  void after_fork();  // what the parent holds is not the child's

 private:
  void hold(State& state, unsigned gpu);

  char folder_[4096] = {};
  std::atomic<std::int64_t> ready_[kMaxGpus] = {};  // boot time at which it is attached; 0: not begun, kReady: it is
  std::atomic<std::uint32_t> client_{0};            // index in State::clients, plus one
};

// A GPU that slept is awake from here on.
inline bool sleeps(const State& state, unsigned gpu) {
  return state.touched[gpu].asleep.load(std::memory_order_relaxed) != 0;
}
void wake(State& state, bool writable, const char* folder, unsigned gpu);

// Until the state has another version than this, or its time was set; for no longer than so much real time.
inline constexpr std::int64_t kLookAgainNs = 50'000'000;
void wait_for_change(State& state, std::uint64_t version, std::int64_t for_ns);

// Takes the time that a call of this name costs, under the driver's one lock.
void pay(State& state, bool writable, const char* function);

// Reads the file that is never answered as long as a dstate fault is in force (sim/dstate.h). False: it is not
// served, and the caller has to wait in another way.
bool read_unanswered(const char* folder, std::int32_t gpu);

}  // namespace lull::sim
