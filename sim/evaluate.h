#pragma once
// What the simulated GPUs show, as pure functions of the state and the time.
//
//   value(…, metric, t)          the value at the moment t
//   integral(…, metric, t0, t1)  its integral (util, mem_util, power, sm, tensor, dram), exact:
//                                a burst between two looks is in it
//
// A value that was set wins. Else util is the timeline's plus what the loads on
// the GPU add, at most 100; mem_used the same with their memory. Power runs from
// idle (no process) over idle with a context to the limit at 100 % unless it is
// given; temperature, clocks, pstate, fan and throttling follow.

#include <cstdint>

#include "sim/state.h"

namespace lull::sim {

// The nearest whole number. (Not the maths library's: that would be one more library for every client to load.)
constexpr std::int64_t whole(double value) { return static_cast<std::int64_t>(value + (value < 0 ? -0.5 : 0.5)); }
constexpr double rounded(double value) { return static_cast<double>(whole(value)); }

// All that an answer depends on. `now_ns` is when the caller looked: a death that was not known by then
// has not happened.
struct Scene {
  State& state;
  bool writable;
  const Live& live;
  std::int64_t now_ns;
};

double value(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns);
double integral(const Scene& scene, unsigned gpu, Metric metric, std::int64_t from_ns, std::int64_t to_ns);

// Of a GPU instance (MIG): what the loads on its devices add up to, percent x seconds. Exact as long as the loads are
// remembered: some seconds after their end, on MIG devices until there are many. A set or timeline of the card is none
// of it. Metric::util, or one of kCounterMetrics.
double instance_integral(const Scene& scene, unsigned gpu, std::uint32_t gpu_instance, Metric metric,
                         std::int64_t from_ns, std::int64_t to_ns);

// Sums since the start of the simulation.
Ledger ledger_at(const Scene& scene, unsigned gpu, std::int64_t at_ns);
std::uint64_t energy_mj(const Scene& scene, unsigned gpu, std::int64_t at_ns);

// nvmlDeviceGetUtilizationRates: the mean over the last sample period, not reaching back beyond the last
// change by hand (set, a load's start or end), so that what was set is what is seen.
double recent_mean(const Scene& scene, unsigned gpu, Metric metric, std::int64_t at_ns);

// The sample buffer. Sample k covers the k-th period of real time since the start, shifted a little for
// each GPU. Whole numbers, rounded so that the sum over many stays exact.
struct BufferedSample {
  std::int64_t end_boot_ns = 0;  // CLOCK_BOOTTIME
  std::uint32_t value = 0;       // percent; power: mW
};
// Those that ended after `after_boot_ns`, oldest first, at most `capacity`. A period in which the card neither
// worked nor was held is not recorded.
unsigned buffered_samples(const Scene& scene, unsigned gpu, Metric metric, std::int64_t after_boot_ns,
                          BufferedSample* out, unsigned capacity);

// Is this load there at the moment? Its end is looked up (and a death found) as of scene.now_ns.
bool present(const Scene& scene, const Load& load, std::int64_t at_ns);
const Step& step_at(const Load& load, std::int64_t at_ns);
std::uint64_t mig_memory_used(const Scene& scene, unsigned gpu, unsigned mig, std::int64_t at_ns);

// Calls each(const Load&) for every load of the GPU that is there at the moment.
template <class Each>
void each_load(const Scene& scene, unsigned gpu, std::int64_t at_ns, Each&& each) {
  unsigned guard = 0;
  for (std::uint32_t i = scene.live.first_load[gpu]; i < kMaxLoads && guard < kMaxLoads; ++guard) {
    const Load& load = scene.live.loads[i];
    if (present(scene, load, at_ns)) each(load);
    i = load.next;
  }
}

// What goes wrong with a call at this moment. `gpu` is kWholeDriver for calls about no GPU.
struct Trouble {
  std::int32_t code = 0;     // nvml::Return to answer; 0: none
  std::int64_t hang_ns = 0;  // block for so long first
  bool dstate = false;       // sleep where no signal reaches first, until the fault is over
  bool garbage = false;      // answer nonsense
  bool file = false;         // of a file: fails with this errno, or is empty
  std::int32_t file_error = 0;
};
// Whether a fault's pattern (a name, "nvmlDeviceGet*", or nothing for all) means this function.
bool names(const char* pattern, const char* function);

Trouble trouble(const Live& live, std::int32_t gpu, const char* function, bool about_util, std::int64_t at_ns);
// Is there any dstate fault that concerns this GPU (kWholeDriver: init and calls about no GPU)?
bool stuck(const Live& live, std::int32_t gpu, std::int64_t at_ns);
// Counts the times the driver went away: a client initialised before the last of them must do it again.
std::uint32_t driver_epoch(const Live& live, std::int64_t at_ns);
bool unloads_driver(const Fault& fault);
bool driver_loaded(const Live& live, std::int64_t at_ns);

}  // namespace lull::sim
