#pragma once
// Creates a simulation and changes it while it runs: what `lull sim` stands on.
// Every change is one version: clients see all of it or nothing of it. Writers
// take turns by a lock on `lock` in the folder, which the kernel drops if one dies.

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/result.h"
#include "sim/mapping.h"
#include "sim/state.h"

namespace lull::sim {

// ---- creating --------------------------------------------------------------------
struct GpuPlan {
  Gpu gpu;  // from model(), then changed to taste; `timeline` in it is filled in by create_state()
  std::array<std::vector<Keyframe>, kMetrics> keyframes;  // sorted by time; only at_ns, value and ramp count
  std::array<std::int64_t, kMetrics> repeat_ns{};         // above 0: the timeline starts again
};

struct Plan {
  double speed = 1;
  bool sample_epoch = false;  // timestamps of samples count from 1970, not from boot
  std::int64_t sample_period_ns = kSamplePeriodNs;
  std::int64_t sample_lag_ns = 0;  // how long after their end they can be read
  std::uint32_t sample_capacity = kSampleCapacity;
  std::array<std::int64_t, kCosts> cost_ns{};  // of each kind of call
  bool wsl = false;                            // a driver that is not in this kernel: none of its files are there
  std::vector<GpuPlan> gpus;
  std::vector<std::vector<std::uint8_t>> topology;  // nvml::kTopology*; empty: from the NUMA nodes
  std::vector<Fault> faults;
  std::vector<Load> processes;  // cell kNone
  // The time of the machine by hand, from the beginning: CLOCK_BOOTTIME, and CLOCK_REALTIME, begin at so much.
  std::optional<std::int64_t> manual_boot_ns;
  std::string driver_version;  // empty: the default
};

// Writes `folder`/state and `folder`/lock; the folder must exist. The clock starts now.
Result<> create_state(const std::string& folder, const Plan& plan);

// ---- changing --------------------------------------------------------------------

// A process's hold on a GPU, from hold() until it is destroyed or its process dies.
class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  Hold(Hold&& other) noexcept;
  Hold& operator=(Hold&& other) noexcept;
  ~Hold() { release(); }
  void release();  // the load ends now

 private:
  friend class Writer;
  Mapping mapping_;
  std::uint32_t cell_ = kNone;
  pid_t owner_ = 0;
};

struct Change {
  unsigned gpu = 0;
  Metric metric = Metric::util;
  double value = 0;  // kDerive: back to the timeline
};

Result<> check_gpu(const State& state, std::int64_t gpu);  // there is such a GPU

class Writer {
 public:
  static Result<Writer> open(const std::string& folder);

  const Mapping& mapping() const { return mapping_; }
  const State& state() const { return mapping_.state(); }

  Result<> set(const std::vector<Change>& changes);
  Result<> add_faults(const std::vector<Fault>& faults);  // from_ns -1: from now on
  Result<> clear_faults(std::int32_t gpu);                // kEveryGpu: all there are, whatever they are about
  Result<> end_reset_required(unsigned gpu);              // the card was reset: it does not ask for it any more
  Result<> clear();                                       // faults, and everything that was set

  // What time it is, for all clients; never earlier than before.
  void set_time(std::int64_t boot_ns);

  // Suspended, until an NVML call touches it; in a furnished folder (sim/machine.h).
  Result<> put_to_sleep(unsigned gpu, bool asleep);

  // Brings the plain files of cards up to date (sim/files.h); every change does that by itself.
  void refresh();

  // Puts the calling process on a GPU. Its end is known the moment the calling *thread* ends (so hold
  // from the main thread), also by SIGKILL. load.start_ns, pid and cell are filled in.
  Result<Hold> hold(Load load);
  // Writes down when each process dies, as it dies, so that sums are right even if no client looks; new
  // ones are noticed. Returns when `stop_fd` becomes readable (-1: none) or the simulation's folder is
  // gone. For a thread or process of the one who runs the simulation, with a Writer of its own.
  Result<> watch_deaths(int stop_fd);

  // The driver is gone for every client, as if unloaded.
  void close_simulation();

 private:
  Result<> commit(const std::function<Result<>(Live&, std::int64_t)>& edit);
  void show_driver_as_it_is();

  Mapping mapping_;
  Fd lock_;
  std::string folder_;
};

}  // namespace lull::sim
