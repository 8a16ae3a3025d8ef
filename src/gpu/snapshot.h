#pragma once
// A Snapshot is everything known about the machine's GPUs at one instant. It is
// a value: complete, and const once published. Nothing in it reaches back to the
// hardware. What does not change from sample to sample (names, UUIDs) sits in an
// Inventory that snapshots share.

#include <sys/types.h>

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gpu/metric.h"
#include "gpu/topology.h"

namespace lull {

// Why a value is not there. Unknown is never idle; this is what we tell people.
enum class Absence : std::uint8_t {
  none,            // it is there
  not_asked,       // this kind of reading was not wanted
  not_supported,   // the card has none (fan of a T4, util of a MIG device)
  lost,            // GPU fell off the bus
  reset_required,  // GPU needs a reset
  no_permission,
  no_symbol,    // the driver library is too old to know the call
  no_driver,    // driver not loaded, or unloaded under us
  mismatch,     // library and kernel module differ
  no_answer,    // the call did not return in time
  no_baseline,  // needs two samples, and this is the first
  failed,       // anything else the driver said
  not_covered,  // less than nine tenths of the time since the previous sample was measured
  implausible,  // a number outside what the metric can be (kMetricTable)
  asleep,       // the card is suspended, and asking would wake it
  hidden,       // the driver does not show processes of other pid namespaces
  looking,      // there is much to look through, and it is not done yet
  waking,       // the driver still wakes the card, for our first look at it
  no_beat,      // the program has not called beat() yet, or is none that could (Python's lull.watch)
};
std::string_view words(Absence absence);  // "GPU is lost"

// What a value is of: the driver's own account of the whole time since the previous
// sample, many momentary values in that time, or the moment only. Rules treat them
// alike (what covers too little is unknown before they see it), people are told.
enum class Basis : std::uint8_t { unknown, mean, instant, moments };

enum class DeviceKind : std::uint8_t { gpu, mig };

// What makes two devices the same one, wherever that is asked: the UUID, or, where none could be read, the place in the
// machine. Never empty, so that two cards of which nothing could be read are not taken for one: Device::id() makes it.
struct DeviceId {
  DeviceId() = delete;
  DeviceId(std::string name)
      : value(name.empty() ? throw std::logic_error("a GPU without identity") : std::move(name)) {}
  std::string value;
  auto operator<=>(const DeviceId&) const = default;
};

struct Device {
  DeviceKind kind = DeviceKind::gpu;
  unsigned index = 0;      // NVML's: by PCI bus
  unsigned mig_index = 0;  // of a MIG device: which of its parent's
  std::string uuid;        // "GPU-…" or "MIG-…"; empty: could not be read
  std::string name;
  std::string pci;                           // "00000000:3B:00.0"
  std::optional<unsigned> minor;             // N of /dev/nvidiaN
  std::optional<unsigned> gpu_instance;      // MIG only
  std::optional<unsigned> compute_instance;  // MIG only
  std::optional<double> speed;               // cores x MHz: CUDA counts the fastest GPU first
  Absence absence = Absence::none;           // lost before anything could be read of it
  bool operator==(const Device&) const = default;

  DeviceId id() const;
  // Whether this is the one: by its UUID, or by the place that names it while no UUID can be read.
  bool is(const DeviceId& other) const;
  std::string label() const;  // "3", or "3:1" for the second MIG device of GPU 3
};

struct Inventory {
  std::vector<Device> devices;  // a GPU is followed by its MIG devices
  std::optional<std::size_t> place_of(const DeviceId& id) const;
  std::string driver_version;
  std::string library;  // the path that was loaded
};

// A process that has a context on a GPU.
struct Tenant {
  pid_t pid = 0;
  bool compute = false;
  bool graphics = false;
  std::optional<std::uint64_t> memory_bytes;
  std::optional<unsigned> gpu_instance;
  bool mps_server = false;  // serves others; it counts through its clients
  bool here = true;         // the number surely names a process of our own pid namespace
  bool operator==(const Tenant&) const = default;
};

// What /proc says about a process. A pid that cannot be seen from here (another
// container) has no such entry.
struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;  // since boot, with pid: names a process for good
  std::optional<WallTime> started;
  uid_t uid = 0;
  std::string user;                    // name, or the number where there is none
  std::string name;                    // comm
  std::vector<std::string> arguments;  // empty: a kernel thread, or not ours to read
  std::string cgroup;                  // path in the unified or a controller's hierarchy
  std::string container;               // id of the container, shortened; empty: none
  char state = '?';

  std::string command_line() const;  // arguments joined, or [name]
};

// Values by metric, each known or with the reason why it is not: of a GPU (Reading), of a job (cpu, io, quiet), of the
// machine (user_idle).
struct Facts {
  std::array<double, kMetrics> value;
  std::array<Absence, kMetrics> absence;

  Facts() {
    value.fill(kUnknown);
    absence.fill(Absence::not_asked);
  }
  double operator[](Metric metric) const { return value[index_of(metric)]; }
  // The one door for values from outside: what the metric cannot be is unknown.
  void set(Metric metric, double known) {
    if (!plausible(metric, known)) return miss(metric, Absence::implausible);
    value[index_of(metric)] = known;
    absence[index_of(metric)] = Absence::none;
  }
  void miss(Metric metric, Absence why) {
    value[index_of(metric)] = kUnknown;
    absence[index_of(metric)] = why;
  }
  Absence why_missing(Metric metric) const { return absence[index_of(metric)]; }
};

// What one GPU tells. Only signals of GPUs are in it.
struct Reading : Facts {
  Basis util_basis = Basis::unknown;
  double util_coverage = 0;             // which share of the time since the previous sample was measured
  double power_coverage = 0;            // likewise
  std::optional<Duration> idle_before;  // of a first sample, where asked for: how long the driver saw no work
  Basis power_basis = Basis::unknown;
  Absence device_absence = Absence::none;  // the GPU as a whole
  Duration unanswered{};                   // with no_answer and waking: for how long
  std::optional<double> energy_joules;
  std::optional<double> mem_clock_mhz;
  std::optional<std::uint64_t> throttle_reasons;  // 0: does not throttle
  std::optional<bool> mig_mode;
  std::optional<bool> display_active;          // a screen is attached and drawn on
  std::optional<Duration> attached_for;        // since the driver woke the card for us
  bool asleep = false;                         // suspended: idle for sure, and left alone
  bool memory_estimated = false;               // unified memory: what the tenants hold, what the machine has left
  bool processes_hidden = false;               // the driver may leave out processes (another pid namespace)
  std::optional<std::vector<Tenant>> tenants;  // nullopt: could not look

  void miss_all(Absence why);  // every GPU metric, the tenants too
};

// Which of the three a signal is found in.
inline const Facts& facts_with(Metric metric, const Reading& gpu, const Facts& job, const Facts& machine) {
  switch (info(metric).of) {
    case Of::job: return job;
    case Of::machine: return machine;
    case Of::gpu: break;
  }
  return gpu;
}

// How the driver as a whole is doing.
struct DriverState {
  Absence absence = Absence::none;
  std::string detail;     // for a person: what was looked for, where, what it said
  Duration unanswered{};  // with no_answer: for how long
};

struct Snapshot {
  Instant at{};     // when the last value was read
  Instant asked{};  // when the sample was asked for: all of it is newer
  WallTime wall{};
  std::shared_ptr<const Inventory> inventory;  // never null
  std::vector<Reading> readings;               // one for each device of the inventory
  DriverState driver;
  Duration took{};         // how long reading it took, from the first call to the last value
  Duration attach_took{};  // how long the slowest card took to wake up when the driver was first asked for it
  std::map<pid_t, ProcessInfo> processes;    // of the tenants, where asked for and visible
  std::shared_ptr<const Topology> topology;  // where asked for and told

  // Null: not in this machine, or not any more.
  const Reading* find(const DeviceId& id) const;
};

}  // namespace lull
