#pragma once
// The state of a simulation: one file, `$LULL_SIM/state`, that every client maps.
//
//   State        fixed when the simulation is created: the GPUs, what they are
//                and how they are wired, and their timelines (keyframes in the
//                tail of the file; a recorded trace is just many keyframes)
//   Live  x 4    what `lull sim set|fault|load|clear` change, in four slots
//   Cell  x 1024 one a live process: says when it died, and that it did
//   Touched, Client  what clients do to the machine by looking at it: which GPUs they
//                woke, and hold
//
// Readers never wait for a writer. A writer takes the lock file, copies the
// current Live slot to the next, changes the copy and publishes it by one atomic
// add to `version`; killed half-way it leaves nothing behind but an unpublished
// slot. A reader takes the slot of the version it saw and tries again if three
// newer ones came meanwhile (then its slot is being written again).
//
// One clock for all: scenario time is the nanoseconds since `start_boot_ns` on
// CLOCK_BOOTTIME times `speed`. Every value a client sees is a pure function of
// this state and that time (evaluate.h): what was set is appended with its time,
// never written over, so the past (sample buffer, energy) stays what it was.
// A test may be the clock itself (`manual_boot_ns`): a day then passes as fast as
// the calls are made, and what a call costs or how long it hangs goes by it too.
//
// Everything here is of fixed size, trivially copyable, without pointers.

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <string_view>

namespace lull::sim {

inline constexpr std::uint64_t kMagic = 0x316d69736c6c756cULL;  // "lullsim1"
inline constexpr std::uint32_t kLayout = 6;                     // add one when anything here moves

inline constexpr unsigned kMaxGpus = 640;  // more than lull reads (sense/wire.h), so that this can be shown
inline constexpr unsigned kMaxMig = 8;
inline constexpr unsigned kMaxLinks = 18;
inline constexpr unsigned kCpuWords = 16;  // 64 processors each
inline constexpr unsigned kMaxLoads = 1024;
inline constexpr unsigned kMaxSteps = 16;
inline constexpr unsigned kMaxFaults = 256;
inline constexpr unsigned kMaxSets = 8192;
inline constexpr unsigned kSlots = 4;
inline constexpr unsigned kMaxClients = 256;

inline constexpr std::int64_t kForever = std::numeric_limits<std::int64_t>::max();
inline constexpr std::uint32_t kNone = 0xFFFFFFFF;

// ---- values over time --------------------------------------------------------

// What can be set or have a timeline. Unless it has one of these, a value is
// derived: util and mem_used from the loads, the others from util (evaluate.h).
enum class Metric : std::uint8_t {
  util,          // percent
  mem_util,      // percent
  mem_used,      // bytes; without what the driver itself reserves, as nvidia-smi shows it
  power,         // watts
  temp,          // Celsius
  fan,           // percent
  clock,         // MHz, graphics and SM
  mem_clock,     // MHz
  pstate,        // 0 to 15
  pcie_tx,       // bytes/s, from the GPU
  pcie_rx,       // bytes/s, to the GPU
  throttle,      // bits of nvmlDeviceGetCurrentClocksThrottleReasons
  encoder,       // percent
  decoder,       // percent
  power_limit,   // watts, enforced
  compute_mode,  // 0 default, 2 prohibited, 3 exclusive process
  mig_mode,      // 0 off, 1 on: the card is cut as Gpu::mig says
  persistence,   // 0 off, 1 on: the driver stays attached, so that attaching takes no time
  sm,            // percent; the chip's own counters, on cards that have them
  tensor,        // percent
  dram,          // percent
};
inline constexpr unsigned kMetrics = 21;
inline constexpr std::string_view kMetricNames[kMetrics] = {
    "util",        "mem_util",     "mem_used", "power",       "temp",     "fan",     "clock",
    "mem_clock",   "pstate",       "pcie_tx",  "pcie_rx",     "throttle", "encoder", "decoder",
    "power_limit", "compute_mode", "mig_mode", "persistence", "sm",       "tensor",  "dram"};
inline constexpr unsigned kCounters = 3;
inline constexpr Metric kCounterMetrics[kCounters] = {Metric::sm, Metric::tensor, Metric::dram};
constexpr const char* counter_name(unsigned counter) {
  return kMetricNames[static_cast<unsigned>(kCounterMetrics[counter])].data();
}
// Those of util, by default.
inline constexpr double kCounterShares[kCounters] = {0.8, 0.5, 0.4};

// A value may also be: not given, so derive it; or not supported by this card.
inline constexpr double kDerive = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kUnsupported = std::numeric_limits<double>::infinity();

// From `at_ns` on the value holds (or, with `ramp`, moves in a straight line to
// the next keyframe's). The first keyframe's value also holds before it. The two
// sums make integrals over any stretch O(log n); create_state() fills them in.
struct Keyframe {
  std::int64_t at_ns = 0;  // scenario time
  double value = 0;
  double integral = 0;  // of the value, from the first keyframe to this one: value x seconds
  double busy = 0;      // seconds of it in which the value was above 0
  std::uint32_t ramp = 0;
  std::uint32_t unused = 0;
};

// Keyframes [first, first + count) of the tail. count 0: no timeline.
struct Timeline {
  std::uint32_t first = 0;
  std::uint32_t count = 0;
  std::int64_t repeat_ns = 0;  // above 0: starts again every so often
  std::uint32_t gaps = 0;      // 1: some of its values are kDerive or kUnsupported
  std::uint32_t unused = 0;
};

// ---- what is fixed -------------------------------------------------------------

struct MigDevice {
  char uuid[96] = {};     // "MIG-…"
  char profile[32] = {};  // "1g.10gb"
  std::uint32_t gpu_instance = 0;
  std::uint32_t compute_instance = 0;
  std::uint32_t slices = 1;  // of 7
  std::uint32_t memory_slices = 1;
  std::uint32_t placement = 0;  // first memory slice
  std::uint32_t multiprocessors = 0;
  std::uint64_t memory_total = 0;
  std::uint64_t memory_reserved = 0;
};

// What is odd about a card, or about its driver: bits of Gpu::quirks.
enum : std::uint32_t {
  kUnifiedMemory = 1,        // shares the machine's memory: memory info is not supported
  kMemoryTotalZero = 2,      // memory info answers 0 of 0
  kNoPowerLimit = 4,         // power limits are not supported
  kNoUtil = 8,               // utilisation is not supported
  kNoProcessLists = 16,      // process lists are not supported
  kIdentityOnly = 32,        // nothing but name and identity is
  kDisplayActive = 64,       // a screen is attached and drawn on
  kSampleBufferDry = 128,    // the sample buffer has nothing new although the card works
  kNvmlZeros = 256,          // Jetson: NVML answers success with zeros and with processes that are none
  kRdna = 512,               // AMD: a graphics chip; its idle may read busy
  kPhantomBusy = 1024,       // AMD: reads 100 % while a process holds it, whatever that does
  kManyDies = 2048,          // AMD: MI300, which hides some sensors
  kXcpCards = 4096,          // AMD: platform cards of partitions beside the real one
  kXe = 8192,                // Intel: driver xe, not i915
  kResidencyStands = 16384,  // Intel: the idle counters do not move
  kSplit = 32768             // AMD: an MI300 in CPX, which is eight GPUs to KFD
};
inline constexpr unsigned kPartitions = 8;  // of an MI300 in CPX

// Whose a card is. NVML knows NVIDIA's and Tegra's; the others, and Tegra's, are read from files (sim/files.h).
enum class Vendor : std::uint32_t { nvidia, amd, intel, tegra };
inline constexpr std::string_view kVendorNames[] = {"nvidia", "amd", "intel", "tegra"};
constexpr bool in_nvml(Vendor vendor) { return vendor == Vendor::nvidia || vendor == Vendor::tegra; }
constexpr bool has_render_node(Vendor vendor) { return vendor == Vendor::amd || vendor == Vendor::intel; }

// Which processes the lists show, and by which number.
enum : std::uint32_t { kViewAll = 0, kViewOwnNamespace = 1, kViewHost = 2 };

struct Gpu {
  Vendor vendor = Vendor::nvidia;
  char name[96] = {};
  char uuid[96] = {};  // "GPU-…"
  char serial[32] = {};
  char vbios[32] = {};
  char part_number[32] = {};
  std::uint32_t pci_domain = 0;
  std::uint32_t pci_bus = 0;
  std::uint32_t pci_device = 0;
  std::uint32_t pci_device_id = 0;
  std::uint32_t pci_subsystem_id = 0;
  std::uint32_t minor = 0;                // N of /dev/nvidiaN
  std::int32_t numa_node = -1;            // -1: unknown
  std::uint64_t cpu_set[kCpuWords] = {};  // near processors, one bit each

  std::uint64_t memory_total = 0;
  std::uint64_t memory_reserved = 0;  // in use by the driver itself
  std::uint64_t bar1_total = 0;
  double power_idle = 0;     // watts: without processes
  double power_context = 0;  // held, not working
  double power_limit = 0;    // working at 100 %
  double power_limit_min = 0;
  double power_limit_max = 0;
  std::uint64_t energy_base_mj = 0;  // what the counter shows at the start
  std::uint32_t temp_idle = 0;
  std::uint32_t temp_busy = 0;
  std::uint32_t temp_slowdown = 0;
  std::uint32_t temp_shutdown = 0;
  std::uint32_t fans = 0;  // 0: passive, the fan is not supported
  std::uint32_t clock_idle = 0;
  std::uint32_t clock_boost = 0;
  std::uint32_t mem_clock_idle = 0;
  std::uint32_t mem_clock_boost = 0;
  std::uint32_t pstate_idle = 8;
  std::uint32_t architecture = 0;  // NVML_DEVICE_ARCH_*
  std::uint32_t compute_major = 0;
  std::uint32_t compute_minor = 0;
  std::uint32_t brand = 0;
  std::uint32_t cores = 0;
  std::uint32_t multiprocessors = 0;
  std::uint32_t memory_bus_width = 0;
  std::uint32_t pcie_generation = 0;
  std::uint32_t pcie_width = 0;
  std::uint32_t ecc = 0;            // 0: has none, 1: off, 2: on
  std::uint32_t sample_buffer = 1;  // 0: nvmlDeviceGetSamples is not supported
  std::uint32_t energy_counter = 1;
  std::uint32_t quirks = 0;
  std::uint32_t process_view = kViewAll;
  std::uint32_t persistence = 1;    // at the start; Metric::persistence is what it is now
  std::int64_t attach_ns = 0;       // real time that a process's first look at the card takes, without persistence
  std::int64_t scrub_ns = 0;        // real time for which the card reads busy after that
  double module_power = 0;          // watts: what else the energy counter counts
  std::uint32_t begins_asleep = 0;  // suspended until it is first used

  // Of a card that is read from files.
  std::uint32_t card = kNone;         // N of /dev/dri/cardN; its render node is 128 + N
  std::uint32_t kfd_node = 0;         // AMD: its place in KFD's topology, above 0; 0: KFD does not know it
  std::uint32_t kfd_id = 0;           // AMD: gpu_id there
  std::uint64_t unique_id = 0;        // AMD
  std::uint32_t metrics_version = 0;  // AMD: 3 or 6, of gpu_metrics 1.N; 0: it has none
  std::uint32_t gfx_target = 0;       // AMD
  std::uint32_t simds = 0;            // AMD
  std::uint32_t idle_util = 0;        // AMD: percent that it reads while a process holds it and does nothing
  std::int64_t wrap_in_ns = 0;        // above 0: counters that wrap do so after so much of what they count
  char hidden[256] = {};              // names of files that it does not have: ",power1_cap,gpu_metrics,"

  std::uint32_t mig_capable = 0;
  std::uint32_t mig_enabled = 0;
  std::uint32_t mig_count = 0;
  MigDevice mig[kMaxMig] = {};

  std::uint32_t link_count = 0;  // NVLinks that the card has
  std::uint32_t link_version = 0;
  std::uint8_t link[kMaxLinks] = {};  // where each goes: 0 nowhere, kLinkSwitch, else GPU index + 1
  Timeline timeline[kMetrics] = {};
};
inline constexpr std::uint8_t kLinkSwitch = 0xFF;

// How many GPUs an AMD card is to KFD.
constexpr unsigned kfd_places(const Gpu& card) { return (card.quirks & kSplit) != 0 ? kPartitions : 1; }

// ---- what changes ----------------------------------------------------------------

// From `at_ns` on, this metric has this value (kDerive: its timeline's again).
struct Set {
  std::int64_t at_ns = 0;
  double value = 0;
  std::uint32_t previous = kNone;  // older Set of the same metric of the same GPU
  std::uint16_t gpu = 0;
  std::uint8_t metric = 0;
  std::uint8_t unused = 0;
};

enum : std::uint32_t { kCompute = 1, kGraphics = 2, kMps = 4 };  // of which list(s) a process is

struct Step {
  std::int64_t at_ns = 0;                                    // since the load's start, scenario time
  double util = 0;                                           // percent
  double mem_util = kDerive;                                 // percent
  std::uint64_t memory = 0;                                  // bytes
  double counters[kCounters] = {kDerive, kDerive, kDerive};  // percent
};

// A process on a GPU: one that lives (cell != kNone) or one that is only said to be there.
struct Load {
  std::uint32_t pid = 0;
  std::uint32_t gpu = 0;
  std::uint32_t mig = kNone;  // index in Gpu::mig
  std::uint32_t kind = kCompute;
  std::uint32_t cell = kNone;
  std::uint32_t next = kNone;  // another load of the same GPU
  std::int64_t start_ns = 0;   // scenario time
  std::int64_t end_ns = kForever;
  std::uint32_t memory_unknown = 0;  // its memory shows as "not available"
  std::uint32_t step_count = 0;
  std::uint32_t host_pid = 0;          // the pid as the simulation's own namespace has it; `pid` is the process's own
  std::int32_t drm_fds[2] = {-1, -1};  // its descriptors of the card's render node: one client by two numbers
  std::uint64_t pid_namespace = 0;     // inode of its /proc/self/ns/pid; 0: unknown, or not a real process
  Step steps[kMaxSteps] = {};
  char name[64] = {};  // for a pid that is not really there
};

enum class FaultKind : std::uint32_t {
  result,   // the call answers `code`
  no_util,  // utilisation is not supported
  dstate,   // the call sleeps where no signal reaches it (sim/dstate.h)
  garbage,  // the call succeeds and answers nonsense
  file,     // a file of the card fails with the errno `code`; 0: it is empty
};
inline constexpr std::int32_t kEveryGpu = -1;     // calls about any GPU
inline constexpr std::int32_t kWholeDriver = -2;  // init and every call
struct Fault {
  std::int32_t gpu = kEveryGpu;
  FaultKind kind = FaultKind::result;
  std::int32_t code = 0;  // nvml::Return; 0: only hangs, then answers as usual
  std::uint32_t unused = 0;
  std::int64_t hang_ns = 0;  // real time for which each call blocks first
  std::int64_t from_ns = 0;  // scenario time window
  std::int64_t to_ns = kForever;
  char function[72] = {};  // "nvmlDeviceGetPowerUsage", "nvmlDeviceGet*", "power1_*" of files; empty: any
};

// Sums up to a moment, so that they need not be computed from the start.
struct Ledger {
  std::int64_t at_ns = 0;
  double util = 0;                  // percent x seconds of scenario time
  double mem_util = 0;              // percent x seconds
  double energy = 0;                // watts x seconds of scenario time
  double counters[kCounters] = {};  // percent x seconds
};

struct Live {
  std::uint32_t set_count = 0;
  std::uint32_t load_count = 0;
  std::uint32_t fault_count = 0;
  std::uint32_t driver_losses = 0;                  // whole-driver faults that were forgotten (see driver_epoch())
  std::uint32_t last_set[kMaxGpus][kMetrics] = {};  // newest Set of each, kNone: none
  std::uint32_t first_load[kMaxGpus] = {};
  Ledger ledger[kMaxGpus] = {};
  Fault faults[kMaxFaults] = {};
  Load loads[kMaxLoads] = {};
  Set sets[kMaxSets] = {};
};

// The kernel sets a bit in `alive` (a robust mutex) when the holder dies, however
// it dies; whoever sees it first writes down when. Never copied, never versioned.
struct Cell {
  pthread_mutex_t alive;               // held by the process for as long as it lives
  std::atomic<std::uint32_t> watched;  // 1: the bit can be relied on; else pid and start time are checked
  std::uint32_t pid;
  std::uint64_t pid_start_ticks;
  std::atomic<std::int64_t> ended_ns;  // 0: lives
};

// ---- what looking does ------------------------------------------------------------

// Of one GPU. Never copied, never versioned.
struct Touched {
  std::atomic<std::uint32_t> asleep;      // 1: the next call about it wakes it (sim/machine.h)
  std::atomic<std::int64_t> attached_ns;  // scenario time at which a process last attached it; 0: none has
};

// A process that has the library open and holds GPUs by it: from finding one until it shuts down or dies.
struct Client {
  std::atomic<std::uint32_t> pid;  // 0: free
  std::uint32_t unused;
  std::atomic<std::uint64_t> start_ticks;  // with the pid this names the process for good
  std::atomic<std::uint64_t> gpus[kMaxGpus / 64];
};

// What a call costs, in nanoseconds of real time under one lock of the whole machine, by kind of call.
enum class Cost : std::uint8_t { lists, fan, memory, util, samples, power, other };
inline constexpr unsigned kCosts = 7;
inline constexpr std::string_view kCostNames[kCosts] = {"lists", "fan", "memory", "util", "samples", "power", "other"};

// ---- the file ----------------------------------------------------------------------

// As real drivers have it: 72 samples in 10 s.
inline constexpr std::int64_t kSamplePeriodNs = 10'000'000'000 / 72;
inline constexpr std::uint32_t kSampleCapacity = 72;
inline constexpr std::uint32_t kMaxSampleCapacity = 240;

inline constexpr std::string_view kDriverVersion = "535.261.03";

struct State {
  std::uint64_t magic = kMagic;
  std::uint32_t layout = kLayout;
  std::uint32_t gpu_count = 0;
  std::uint32_t nvml_count = 0;              // the first so many are NVML's
  std::atomic<std::uint32_t> files_live{0};  // 1: files of cards are made as they are read (sim/files_server.h)
  std::uint64_t file_size = 0;
  std::int64_t start_boot_ns = 0;               // CLOCK_BOOTTIME
  std::atomic<std::int64_t> manual_boot_ns{0};  // not 0: this is what CLOCK_BOOTTIME is, until it is set again
  std::int64_t start_wall_ns = 0;               // CLOCK_REALTIME, for calls that speak of 1970
  double speed = 1;
  std::int64_t sample_period_ns = kSamplePeriodNs;  // real time
  std::int64_t sample_lag_ns = 0;                   // how long after their end samples can be read
  std::uint32_t sample_capacity = kSampleCapacity;
  std::uint32_t sample_epoch = 0;  // 1: sample timestamps count from 1970, as with older drivers, not from boot
  std::uint32_t keyframe_count = 0;
  std::uint32_t unused = 0;
  char driver_version[80] = "535.261.03";
  char nvml_version[80] = "12.535.261.03";
  std::uint32_t cuda_version = 12020;
  std::atomic<std::uint32_t> driver_hidden{0};  // 1: the driver's files are taken away (sim/machine.h)
  std::atomic<std::uint32_t> closed{0};         // 1: the simulation is over, the driver is gone
  alignas(64) std::atomic<std::uint64_t> version{0};
  alignas(64) Gpu gpus[kMaxGpus];
  std::uint8_t topology[kMaxGpus][kMaxGpus] = {};  // nvml::kTopology* of each pair
  std::uint64_t pid_namespace = 0;                 // of the one who made this: "the host"
  std::int64_t cost_ns[kCosts] = {};
  std::uint32_t any_cost = 0;
  pthread_mutex_t driver_lock = {};  // the driver's own, held for the length of a cost; robust
  Touched touched[kMaxGpus] = {};
  Client clients[kMaxClients] = {};
  Cell cells[kMaxLoads] = {};
  Live slots[kSlots];

  const Keyframe* keyframes() const { return reinterpret_cast<const Keyframe*>(this + 1); }
};

static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

}  // namespace lull::sim
