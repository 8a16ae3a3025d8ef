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
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/process.h"
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
  too_many,     // the machine has more GPUs than can be read
  busy,         // the driver was busy with something else (EBUSY): a card that resets
  still,        // a counter that has never moved: the card may be busy all the time, or not count at all
  looks_hung,   // a rule for hangs is not asked of a card whose own idle looks like one
  partition,    // a part of a card of which the driver gives no values of its own
  not_learned,  // too little of the card's work, or no idle of it, was seen yet (gpu/power_learner.h)
  little_work,  // the card does too little to compare its power with
  no_source,    // of a signal of the user's own: it has no source
  unread,       // likewise: its source has not answered yet
  unreadable,   // likewise: its source cannot be read; what is wrong is said beside (session/own_signals.h)
  stale,        // likewise: its source repeats something old
  untold,       // the work cannot be attributed
};
std::string_view to_string(Absence absence);  // "GPU is lost"
std::string unanswered_text(Duration time);   // "driver has not answered for 12s"

// What a value is of: the driver's own account of the whole time since the previous
// sample, many momentary values in that time, or the moment only. Rules treat them
// alike (what covers too little is unknown before they see it), people are told.
enum class Basis : std::uint8_t { unknown, mean, instant, moments };

enum class DeviceKind : std::uint8_t { gpu, mig };

// Whose driver a GPU is read from. A Jetson is NVIDIA's as well, but is read from files (tegra).
enum class Vendor : std::uint8_t { nvidia, amd, intel, tegra };
std::string_view to_string(Vendor vendor);  // "amd"

// What makes two devices the same one, wherever that is asked: the UUID, or, where none could be read or several cards
// have the same one (a faulty card, a cloned vBIOS), the place in the machine. Never empty, so that two cards of which
// nothing could be read are not taken for one: Device::id() makes it.
struct DeviceId {
  DeviceId() = delete;
  DeviceId(std::string name)
      : value(name.empty() ? throw std::logic_error("a GPU without identity") : std::move(name)) {}
  std::string value;
  auto operator<=>(const DeviceId&) const = default;
};

struct Device {
  DeviceKind kind = DeviceKind::gpu;
  Vendor vendor = Vendor::nvidia;
  unsigned vendor_index = 0;  // N of "amd:N": the place among the GPUs of its vendor
  unsigned index = 0;         // among all GPUs; NVIDIA's come first, in NVML's order (by PCI bus)
  unsigned mig_index = 0;     // of a MIG device: which of its parent's
  std::string uuid;           // "GPU-…" or "MIG-…"; empty: could not be read
  std::string name;
  std::string pci;                           // "00000000:3B:00.0"
  std::optional<unsigned> minor;             // N of /dev/nvidiaN
  std::optional<unsigned> gpu_instance;      // MIG only
  std::optional<unsigned> compute_instance;  // MIG only
  std::optional<double> speed;               // cores x MHz: CUDA counts the fastest GPU first
  std::optional<unsigned> render_minor;      // N of /dev/dri/renderDN (AMD, Intel)
  std::optional<unsigned> kfd_rank;          // AMD: the place in the order that ROCR_VISIBLE_DEVICES counts in
  bool partition = false;                    // AMD: a part of a card that shares its unique_id with others (CPX)
  bool integrated = false;                   // in the processor, with outputs: it draws, more than it computes
  bool idle_looks_hung = false;              // AMD's RDNA and Intel: 100 % busy at the power of rest may be idle
  Absence absence = Absence::none;           // lost before anything could be read of it
  bool without_uuid = false;                 // it has none, and its PCI address names it (Intel, some of AMD)
  bool shares_uuid = false;                  // another device of this machine has the same UUID
  bool operator==(const Device&) const = default;

  DeviceId id() const;
  // Whether this is the one: by its UUID, or by the place that names it while no UUID can be read or several have it.
  bool is(const DeviceId& other) const;
  bool has_own_uuid() const { return !uuid.empty() && !shares_uuid; }
  std::string label() const;         // "3", or "3:1" for the second MIG device of GPU 3
  std::string vendor_label() const;  // "amd:0"
  Vendor runtime() const;            // that a program needs for it: a Jetson's is NVIDIA's
};
std::string labels(const std::vector<Device>& devices);  // "GPU 3", "GPUs 0, 3:1"

struct Inventory {
  std::vector<Device> devices;  // a GPU is followed by its MIG devices
  std::optional<std::size_t> place_of(const DeviceId& id) const;
  std::size_t card_of(std::size_t place) const;  // a MIG device is a part of it, and shares its device file
  bool several_vendors() const;
  std::vector<std::size_t> places_of(Vendor runtime) const;
  std::string driver_version;
  std::string library;                  // the path that was loaded
  std::vector<std::string> notes = {};  // files of lull's own that were ignored, for a person

  // What a person should know of it: UUIDs that several GPUs share, GPUs that are not read. One line each.
  std::vector<std::string> warnings() const;
};

// Whether the process that has a number now is the one that uses the GPU.
enum class Proof : std::uint8_t {
  proven,    // it holds the GPU's device file, and has had the number since the driver first reported it
  unproven,  // that cannot be checked: we may not look at its files, or it belongs to another pid namespace
  stale,     // it is not: that process has ended, and the number may be another's by now
};
std::string_view to_string(Proof proof);  // "proven"

// What /proc says about a process. A pid that cannot be seen from here (another
// container) has no such entry.
struct ProcessInfo {
  pid_t pid = 0;
  pid_t parent = 0;
  std::uint64_t start_ticks = 0;  // since boot, with pid: names a process for good
  std::optional<WallTime> started;
  std::optional<uid_t> uid;            // nothing: not ours to read
  std::string user;                    // name, or the number where there is none
  std::string name;                    // comm
  std::vector<std::string> arguments;  // empty: a kernel thread, or not ours to read
  std::string cgroup;                  // path in the unified or a controller's hierarchy
  std::string container;               // id of the container, shortened; empty: none
  char state = '?';

  std::string command_line() const;  // arguments joined, or [name]
};

// A process that uses a GPU, with what is known of it. The sensor says what it does there and whether it is proven to
// be the one (sense/proof.h); the sampler adds `info` where that is asked for; GpuUsers (jobs/gpu_users.h) says whether
// it is still there, and whose job it is. Only a proven one is ended, and counts as use.
struct GpuProcess {
  pid_t pid = 0;
  bool compute = false;
  bool graphics = false;
  std::optional<std::uint64_t> memory_bytes = {};
  std::optional<unsigned> gpu_instance = {};
  bool mps_server = false;  // serves others; it counts through its clients
  bool here = true;         // a process of that number can be seen, and may be the one (never with Proof::stale)
  Proof proof = Proof::proven;
  std::uint64_t start_ticks = 0;                 // of that process, as in ProcessInfo; 0: not known
  std::shared_ptr<const ProcessInfo> info = {};  // null: not asked for, or it cannot be seen from here

  std::string program = {};  // the name of its executable, where `fill` has looked

  // By GpuUsers.
  bool identified = false;     // proven, and the very process that was listed still runs
  bool only_looks = false;     // a monitor, a display server: not a job
  bool stopped = false;        // by a signal, by a debugger, or its cgroup is frozen
  std::string job = {};        // "tree:4711@…", "lease:…", "container:…", "slurm:12"; empty: not asked for, or unknown
  std::string job_title = {};  // for a person
  bool operator==(const GpuProcess&) const = default;

  bool proven() const { return here && proof == Proof::proven; }
  ProcessId id() const { return {pid, start_ticks}; }
  std::string user() const { return info != nullptr ? info->user : ""; }
  std::string name() const { return info != nullptr ? info->name : ""; }  // comm
  // What /proc says of the process with this number. It is read a moment later than the list: another may have it.
  void set_info(const std::shared_ptr<const ProcessInfo>& found) {
    if (here && (start_ticks == 0 || start_ticks == found->start_ticks)) info = found;
  }
};

// What one process did on a GPU since the previous sample, by the driver's samples per process. A number alone: whose
// it is says the list of processes. NaN: the driver returned a value that is not a percentage.
struct ProcessShare {
  pid_t pid = 0;
  double percent = 0;  // the largest of kernels, memory, encoder and decoder
  double kernels = 0;  // what adds up to the GPU's `util`
  bool operator==(const ProcessShare&) const = default;
};

// What a GPU on which nothing runs may have in use, in bytes. An empty one shows 0 to 8 MiB once the driver's own
// reserve is left out (A100: 7.8 MB of 912, nvml-wrapper#57; P100: 0 of 103 MiB, gpustat#130), an idle MPS server about
// 30; a CUDA context takes more than this before it has allocated anything.
inline constexpr double kEmptyCard = 64.0 * (1U << 20);

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
  // All values from outside pass through here: what the metric cannot be is unknown.
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

// From the lowest to the highest of some values; both unknown where there is none.
struct Band {
  double low = kUnknown;
  double high = kUnknown;
  void add(double value) {
    low = low < value ? low : value;
    high = high > value ? high : value;
  }
};

// What one GPU tells. Only signals of GPUs are in it.
struct Reading : Facts {
  Basis util_basis = Basis::unknown;
  double util_coverage = 0;             // which share of the time since the previous sample was measured
  double power_coverage = 0;            // likewise
  std::optional<Duration> idle_before;  // of a first sample, where asked for: how long the driver saw no work
  Basis power_basis = Basis::unknown;
  // The newest data alone, where a value is a mean of more: the driver's samples of its last period, and the moment.
  Band util_newest;
  Band power_newest;
  Band effort_newest;
  double watts_per_percent = kUnknown;  // what this card usually draws for each % of util, where that is learned
  Duration newest_span = std::chrono::milliseconds(200);  // so long before this reading the newest data begin
  Duration newest_period{};                // of the driver's samples, one of which they are; zero: they are not
  Duration counters_span{};                // so long before this reading the time begins that the chip's counters
                                           // (sm, tensor, dram, util of a MIG device) are of; zero: not theirs
  Absence device_absence = Absence::none;  // the GPU as a whole
  Duration unanswered{};                   // with no_answer and waking: for how long
  std::optional<double> energy_joules;
  std::optional<double> mem_clock_mhz;
  std::optional<std::uint64_t> throttle_reasons;  // 0: does not throttle
  std::optional<bool> mig_mode;
  std::optional<bool> persistence;       // NVIDIA: the driver keeps the card ready without clients
  std::optional<bool> display_active;    // a screen is attached and drawn on
  std::optional<Duration> attached_for;  // since the driver woke the card for us
  bool asleep = false;                   // suspended: idle for sure, and left alone
  std::int64_t awake_ms = -1;     // of one that is: how long it was awake in all, as the kernel counts; -1: not told
  bool memory_estimated = false;  // unified memory: what the processes hold, what the machine has left
  bool processes_hidden = false;  // the driver may leave out processes (another pid namespace)
  std::optional<std::vector<GpuProcess>> processes;  // nullopt: could not look
  Absence shares_absence = Absence::not_asked;       // none: `shares` are all who worked since the previous sample
  std::vector<ProcessShare> shares;
  Duration shares_span{};           // so long before this reading the time begins that they are of
  double unlisted_util = kUnknown;  // of that time: `util` without what they account for
  Duration openers_span{};          // so long before the sample was asked for the scan began that `openers` is of

  void miss_all(Absence why);  // every GPU metric, the processes too
  // What the newest data say of a signal: the value itself where that is of the moment. Unknown where only the mean of
  // some time is known.
  Band newest(Metric metric) const;
};

// That the device cannot tell this, whatever it does: the others have to. A MIG device has its utilisation from the
// chip's counters alone, which a driver may refuse.
inline bool has_no(const Device& device, const Reading& reading, Metric metric) {
  const Absence why = reading.why_missing(metric);
  if (why == Absence::not_supported) return true;
  return device.kind == DeviceKind::mig && metric == Metric::util &&
         (why == Absence::no_permission || why == Absence::no_baseline);
}

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
  std::string detail;        // for a person: what was looked for, where, what it said
  Duration unanswered{};     // with no_answer: for how long
  std::string text() const;  // the detail, else why it is absent
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
  std::shared_ptr<const Topology> topology;  // where asked for and told

  // Null: not in this machine, or not any more.
  const Reading* find(const DeviceId& id) const;
};

// Why a GPU runs slower than it could, by the driver's bits (Reading::throttle_reasons): "power_cap", "thermal". Some
// bits do not count: an idle GPU rests, an application has set its own clocks. Empty: does not throttle.
bool is_throttling(std::uint64_t reasons);
std::vector<std::string_view> throttle_text(std::uint64_t reasons);

// One word of a cell: without blanks, quotes and separators, so that rows stay quick to read.
std::string one_word(std::string_view text);
// What a process runs in a few words: "python train.py", "torchrun". Not its arguments, which may be private. `name` is
// what the kernel calls it, for one without arguments.
std::string short_command(const std::vector<std::string>& arguments, std::string_view name);

}  // namespace lull
