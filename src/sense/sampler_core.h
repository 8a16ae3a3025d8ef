#pragma once
// The inside of the sampler: the state that the threads share, and the steps
// that they take. Everything is guarded by `mutex` except what a worker holds
// while it is in a call: the GPU it samples and its own scratch space.
//
// A round is one sample of everything. `requested` and `done` count rounds.

#include <pthread.h>

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>

#include "sense/arrange.h"
#include "sense/nvml/gpu.h"
#include "sense/sampler.h"

namespace lull {

struct Sampler::Core : std::enable_shared_from_this<Sampler::Core> {
  explicit Core(SamplerOptions chosen);

  enum class Step : std::uint8_t { none, open, gpu, finish };
  struct Slot {
    explicit Slot(unsigned index) : gpu(index) {
      device.index = index;
      device.absence = Absence::no_answer;  // until it says who it is
    }
    // In a worker's hands while it is in a call: nobody else looks at them then.
    NvmlGpu gpu;
    NvmlAnswer answer;
    // Of all.
    std::uint64_t round = 0;  // of the answer
    unsigned changes = 0;     // of the GPU, when these were copied:
    Device device;
    std::vector<Device> parts;
  };
  using Slots = std::vector<Slot>;
  // What a worker needs for itself, kept from round to round.
  struct Desk {
    Snapshot snapshot;
    NvmlRoom room;
  };
  struct Stuck {
    unsigned index = 0;
    std::uint64_t worker = 0;
    Instant since{};
  };
  using Lock = std::unique_lock<std::mutex>;

  // ---- called by the owner's thread, with the lock held
  bool ask_for_round();  // true: a worker is to be woken for it
  void hand_over(Snapshot& into);
  // Looks whether the worker hangs, and leaves it behind if so.
  void watch(Instant at);
  Instant next_look() const;  // when watch() has something to decide
  void give_up(Instant at);   // publishes what there is
  void replace_worker();

  // ---- the worker
  void work(std::uint64_t id);
  static bool spawn(std::shared_ptr<Core> core, std::uint64_t id);

  bool round(Lock& lock, std::uint64_t id, Desk& desk);  // false: this worker was left behind
  void open_driver(Lock& lock);
  bool sample_slots(Lock& lock, std::uint64_t id, std::uint64_t number, Desk& desk, bool& gone);
  bool finish(Lock& lock, std::uint64_t id, std::uint64_t number, Snapshot& snapshot);
  void drop_driver(Lock& lock);
  void adopt(Slot& slot);  // who the GPU says it is
  void build(Snapshot& snapshot, std::uint64_t number, Instant at);
  void fill(Reading& reading, const Row& row, std::uint64_t number, Instant at) const;
  void publish(Snapshot& snapshot, std::uint64_t number);  // leaves the one before in its place
  void announce(Lock& lock);                               // to the owner that it is there
  void arrange_rows();
  const Stuck* stuck_at(unsigned index) const;
  bool nothing_works(std::uint64_t number) const;

  const SamplerOptions options;
  const Wanted wanted;
  Fd event;  // made when somebody wants it

  mutable std::mutex mutex;
  std::condition_variable wake;  // workers: there is something to do
  std::condition_variable told;  // the owner: a round is done, a worker has ended
  bool stopping = false;
  std::uint64_t worker = 0;  // the current one; others are left behind
  unsigned workers = 0;      // threads that run
  std::uint64_t requested = 0;
  std::uint64_t done = 0;
  std::uint64_t taken = 0;  // by the owner
  Instant round_began{};
  Instant work_began{};  // when a worker took it up

  Step step = Step::none;
  Instant step_began{};
  unsigned step_gpu = 0;
  std::vector<Stuck> stuck;
  bool proc_stuck = false;  // a reader of /proc hangs

  std::shared_ptr<Nvml> nvml;
  DriverState driver;
  Instant opened_at{};
  Instant open_again{};                                      // not before
  std::shared_ptr<Slots> slots = std::make_shared<Slots>();  // a new one whenever the driver is opened
  std::shared_ptr<const Inventory> inventory = std::make_shared<Inventory>();
  std::vector<Row> rows;
  bool rearrange = false;

  Snapshot published;  // the newest; once it is taken, room for the next but one
};

}  // namespace lull
