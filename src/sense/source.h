#pragma once
// Where readings come from: one Source a vendor. Everything in it is called in the sensor process alone (sensor.h),
// since every call may hang in the kernel for seconds or for ever, crash, or end the process.
//
// After open(), calls about different GPUs may come from several threads at once; calls about one GPU never do.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"
#include "gpu/topology.h"

namespace lull {

// Which readings to take: a watcher that judges by `util` need not pay for the rest.
struct Needs {
  bool memory = true;
  bool power = true;
  bool details = true;    // temperature, fan, clocks, pstate, throttle reasons
  bool processes = true;  // who is on the GPU, and `procs`
  bool all_lists = true;  // with processes: who draws, too; else only where a display is active
  // With all_lists: on a card that cannot draw, only where it has more memory or work than its compute processes
  // explain.
  bool if_unexplained = false;
  // With processes: who uses a GPU of AMD without computing by ROCm counts for `procs` as well, and where not all of
  // them can be seen it is unknown. For rules on it.
  bool all_clients = false;
  bool pcie = false;         // a real driver takes 20 ms for each direction
  bool counters = false;     // the chip's own; a MIG device has its utilisation from them in any case
  bool shares = false;       // what each process did; with processes, and lists of now
  bool once = false;         // there will be no second sample: do not prepare for one
  bool idle_before = false;  // with the first sample: how long it has been idle already
  // Process lists cost milliseconds under the driver's one lock: the last answer serves for this long.
  Duration lists_every = std::chrono::seconds(1);
};

// What is read together, for one of these.
inline constexpr std::array kMemoryMetrics = {Metric::mem_used, Metric::mem_free, Metric::mem_total};
inline constexpr std::array kPowerMetrics = {Metric::power, Metric::power_limit};
inline constexpr std::array kCounterMetrics = {Metric::sm, Metric::tensor, Metric::dram};
inline constexpr std::array kDetailMetrics = {Metric::temp, Metric::clock, Metric::pstate, Metric::fan};

// Of one GPU and each of its parts (MIG devices); kept between samples for its memory.
struct Answer {
  Reading gpu;
  std::vector<Reading> parts;
  bool driver_gone = false;  // the whole driver must be opened again
};

// Who a GPU is. `version` counts up whenever something of it changed.
struct Identity {
  unsigned version = 0;
  Device device;
  std::vector<Device> parts;
};

// A momentary value stands for the time since the look before, but for no more than this.
inline constexpr Duration kMomentStands = std::chrono::milliseconds(1500);

class Source {
 public:
  Source() = default;
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  virtual ~Source() = default;

  // Loads and initialises; touches no GPU. What went wrong is a state to show, not an error.
  virtual DriverState open() = 0;
  virtual unsigned count() const = 0;
  virtual std::string driver_version() const = 0;
  virtual std::string library() const = 0;

  // Reads who the GPU is. The first time may take seconds, until the driver has woken the card. False: not yet, the
  // identity's `absence` says why; sample() will try again.
  virtual bool attach(unsigned gpu, Instant now) = 0;
  virtual const Identity& identity(unsigned gpu) = 0;
  virtual void sample(unsigned gpu, const Needs& needs, Instant now, Answer& answer) = 0;

  // Between two samples: reads what would be lost by the next one. To be called again within
  // look_within(); zero: never.
  virtual void look(unsigned gpu, Instant now) = 0;
  virtual Duration look_within(unsigned gpu) const = 0;

  // Nothing is held any more that could be let go: every GPU sleeps, and a fresh start would touch none of them.
  virtual bool wants_release() const { return false; }

  // How the GPUs are joined, by their numbers here. What the driver does not tell is unknown.
  virtual Topology topology() = 0;
};

// Suspended: it does nothing for sure, and to ask for more would wake it.
void say_asleep(const Needs& needs, Reading& reading);
// What only NVIDIA's driver tells us: PCIe traffic, the chip's own counters, and what each process did.
void say_unsupported(const Needs& needs, Reading& reading);
// How long a device was awake in all, by its folder power/ in /sys; -1: not told.
std::int64_t awake_time(const std::string& power_folder);

// NVIDIA's, through its management library; empty: $LULL_NVML, else libnvidia-ml.so.1. `clock`: the one that `now` of
// the calls is of.
std::unique_ptr<Source> make_nvml_source(std::string library, Root root, const Clock& clock);
// Whether its driver may be there. A library that is asked for while there is none runs modprobe each time and fills
// the kernel's log. There are machines whose driver has no such file: WSL2, Jetson; and who names a library wants that
// one.
bool nvml_may_be_there(const std::string& library, const Root& root);

// AMD's and Intel's, and the GPU of a Jetson up to Orin: from files of the kernel alone (sense/file_source.h).
std::unique_ptr<Source> make_amd_source(const Root& root, const Clock& clock);
std::unique_ptr<Source> make_intel_source(const Root& root, const Clock& clock);
std::unique_ptr<Source> make_tegra_source(const Root& root, const Clock& clock);

// All of them as one inventory (sense/all_sources.cc): NVIDIA's first. A driver that cannot be opened costs its own
// GPUs.
std::unique_ptr<Source> make_all_sources(std::string library, const Root& root, const Clock& clock);
// Whether there is any GPU to ask for, without asking; else what was looked for, and where.
bool any_gpu_may_be_there(const std::string& library, const Root& root);
std::string no_gpu_text(const Root& root, bool nvidia_only = false);

// ---- what an answer covers

// It may have worked since the sample before.
void not_covered(Answer& answer);

// A sensor that has just begun knows the moment only. If there was a sample before, the time since then was not
// observed: what would be a mean over it is unknown.
void forget_moments(Reading& reading);

// A suspended GPU is idle now. Whether it slept since the sample before, too, is what the kernel's count of its time
// awake tells: it may have worked in between, and fallen asleep again.
class SleepCover {
 public:
  // Of each sample of one GPU, in order: makes the utilisation of one that may have worked unknown.
  void apply(Answer& answer);

 private:
  std::optional<bool> slept_;   // at the sample before
  std::int64_t awake_ms_ = -1;  // the last that was told
};

}  // namespace lull
