#pragma once
// A scenario says what the simulated machine is made of and what happens to it
// over time: GPUs by model, values that step or ramp, faults, processes, MIG
// devices, links between GPUs. It is read from a TOML file (documented in
// docs/simulator.md) into this plain value; nothing here touches a machine.

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sim/models.h"
#include "sim/state.h"
#include "sim/values.h"

namespace lull::sim {

// From `at` on (over `over`: a ramp), a value is `to`; kDerive: as the model makes
// it by itself; kUnsupported: cannot be read.
struct Point {
  Duration at{};
  Duration over{};
  Metric metric{};
  double to = kDerive;
};

struct GpuSpec {
  Gpu gpu{};         // the model's, with the scenario's overrides; its place in the machine comes later
  std::string uuid;  // empty: made from the index
  std::string pci;   // empty: made from the index
  std::optional<std::uint32_t> numa;
  std::vector<Point> timeline;     // in the order of time
  std::optional<Duration> repeat;  // the timeline starts again after this
  std::vector<std::string> mig;    // profiles: "3g.40gb"
  bool mig_mode = false;
};

enum class FaultName : std::uint8_t {
  lost,
  reset,
  unknown,
  no_util,
  hang,
  unsupported,
  no_permission,
  no_driver,
  mismatch,
  dstate,
  garbage,
  ebusy,
  eperm,
  einval,
  enoent,
  empty,
};

struct FaultSpec {
  FaultName name{};
  std::vector<std::size_t> gpus;  // empty: all of them
  std::string function;           // or file; empty: each that concerns it
  Duration hang{};                // how long one call takes
  Duration at{};
  std::optional<Duration> lasting;  // nothing: to the end
};

struct PhaseSpec {
  std::optional<double> util;
  std::optional<std::uint64_t> memory;
  std::optional<Duration> lasting;                             // nothing: for ever (the last one only)
  std::array<std::optional<double>, kCounters> counters = {};  // nothing: they follow util
};

struct ProcessSpec {
  std::vector<std::size_t> gpus;
  std::string name;                  // what ps and nvidia-smi show
  std::uint32_t kind = kCompute;     // bits of state.h
  bool mps_server = false;           // idle, and named as such
  std::optional<std::uint32_t> mig;  // which MIG device of its GPU
  std::optional<std::uint32_t> pid;  // not a real process: one that cannot be seen from here
  Duration at{};
  std::vector<PhaseSpec> phases;
};

// The server of MPS: in the compute list for as long as it runs, with nothing to do; its clients are in the MPS list.
inline constexpr std::string_view kMpsServerName = "nvidia-cuda-mps-server";
inline constexpr std::uint64_t kMpsServerMemory = std::uint64_t{30} << 20;

struct TopologySpec {
  bool said = false;  // no: as cards of that model come
  struct NvLink {
    std::size_t a = 0;
    std::size_t b = 0;
    std::uint32_t links = 0;
  };
  std::vector<NvLink> nvlinks;                     // both directions in one entry
  bool nvswitch = false;                           // every GPU reaches every other
  std::vector<std::vector<std::size_t>> switches;  // GPUs behind one PCIe switch
};

struct Scenario {
  std::vector<GpuSpec> gpus;
  std::vector<FaultSpec> faults;
  std::vector<ProcessSpec> processes;
  TopologySpec topology;
  double speed = 1;    // seconds of the scenario in a second of ours
  std::string driver;  // version; empty: the simulator's own
  Duration sample_period{kSamplePeriodNs};
  std::uint32_t sample_capacity = kSampleCapacity;
  bool sample_epoch = false;
  std::array<Duration, kCosts> costs{};  // of each kind of call
  bool wsl = false;
  std::string host;  // its name; its GPUs have UUIDs of their own. Empty: this machine's
};

// Reads a file that the scenario names (a trace), relative to the scenario's own folder.
using FileReader = std::function<Result<std::string>(const std::string& path)>;

// `name` is what complaints call the document: "night.toml:3:7: unknown value 'utl'; did you mean 'util'?"
Result<Scenario> parse_scenario(std::string_view text, std::string_view name, const FileReader& read);
Result<Scenario> load_scenario(const std::string& path);

// "4", "H100", "2xMI300X,1xH100"; a bare number is that many of the default model. In the order that lull numbers them.
Result<std::vector<GpuSpec>> parse_gpus(std::string_view text);
// NVIDIA's first, then AMD's, then Intel's; else as they were.
void order_by_vendor(std::vector<GpuSpec>& gpus);
std::string unknown_model(std::string_view text);

// "0", "0,2", "1-3", "all": which of `count` GPUs; in order, none twice.
Result<std::vector<std::size_t>> parse_gpu_list(std::string_view text, std::size_t count);
// Also "amd:0", "intel:0-1", "amd:all": by their place among those of a vendor.
Result<std::vector<std::size_t>> parse_gpu_list(std::string_view text, const std::vector<Vendor>& vendors);
std::vector<Vendor> vendors_of(const std::vector<GpuSpec>& gpus);

// "lost", "hang=8s", …
struct NamedFault {
  FaultName name{};
  Duration hang{};
};
Result<NamedFault> parse_fault(std::string_view text);
std::string_view fault_name(FaultName name);
bool of_whole_driver(FaultName name);
bool of_files(FaultName name);

// "lists=4.5ms,fan=137us": what kinds of calls cost.
Result<> parse_costs(std::string_view text, std::array<Duration, kCosts>& costs);

// An NVML function's name, "nvml" may be left out, '*' at its end stands for anything.
Result<std::string> parse_function(std::string_view text);

// The name of a file, '*' at its end stands for anything.
Result<std::string> parse_file_name(std::string_view text);

// The faults of the state that this one means, from `from_ns` to `to_ns` of scenario time.
std::vector<Fault> state_faults(const FaultSpec& fault, std::int64_t from_ns, std::int64_t to_ns);

// "3g.40gb" as this card offers it.
Result<> check_mig(std::string_view profile, const Gpu& gpu);

}  // namespace lull::sim
