// `lull sim show` and `lull sim models`: what is simulated, as the simulation
// itself knows it (a client's view, through NVML, is `lull status`).

#include <fmt/format.h>

#include <cmath>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/sim.h"
#include "cli/sim_args.h"
#include "nvml/abi.h"
#include "sim/evaluate.h"
#include "sim/models.h"
#include "sim/values.h"

namespace lull {
namespace {

constexpr std::string_view kShowHelp =
    "usage: lull sim show [--json]\n\n"
    "Shows the simulated GPUs as they are now: values (* was set by hand), faults in force, processes.\n\n"
    "example: lull sim show --json\n";

constexpr std::string_view kModelsHelp =
    "usage: lull sim models\n\n"
    "Lists the GPU models that can be simulated, by the names that --gpus and scenarios take.\n\n"
    "example: lull sim models\n";

struct ShownProcess {
  std::uint32_t pid = 0;
  std::uint32_t kind = 0;
  std::uint32_t mig = sim::kNone;
  double util = 0;
  std::uint64_t memory = 0;
  std::string name;
};

struct ShownGpu {
  std::array<double, sim::kMetrics> values{};
  std::array<bool, sim::kMetrics> set{};
  std::vector<ShownProcess> processes;
  std::vector<std::string> faults;
  bool asleep = false;
};

std::string fault_words(const sim::Fault& fault) {
  std::string text = fault.kind == sim::FaultKind::no_util ? "no-util" : "";
  switch (static_cast<nvml::Return>(fault.code)) {
    case nvml::Return::gpu_is_lost: text = "lost"; break;
    case nvml::Return::reset_required: text = "reset"; break;
    case nvml::Return::unknown: text = "unknown"; break;
    case nvml::Return::no_permission: text = "no-permission"; break;
    case nvml::Return::driver_not_loaded: text = "no-driver"; break;
    case nvml::Return::lib_rm_version_mismatch: text = "mismatch"; break;
    case nvml::Return::not_supported:
      if (text.empty()) text = "unsupported";
      break;
    default: break;
  }
  if (fault.kind == sim::FaultKind::dstate) text = "hang=dstate";
  if (fault.kind == sim::FaultKind::garbage) text = "garbage";
  if (fault.hang_ns > 0) text = fmt::format("hang={}", format_duration(Duration(fault.hang_ns)));
  if (fault.function[0] != '\0') text += fmt::format(" --function {}", fault.function);
  return text;
}

ShownGpu look(const sim::Scene& scene, unsigned index) {
  ShownGpu shown;
  shown.asleep = scene.state.touched[index].asleep.load(std::memory_order_relaxed) != 0;
  for (unsigned m = 0; m < sim::kMetrics; ++m) {
    shown.values[m] = sim::value(scene, index, static_cast<sim::Metric>(m), scene.now_ns);
    const std::uint32_t last = scene.live.last_set[index][m];
    shown.set[m] = last < sim::kMaxSets && !std::isnan(scene.live.sets[last].value);
  }
  sim::each_load(scene, index, scene.now_ns, [&](const sim::Load& load) {
    const sim::Step& step = sim::step_at(load, scene.now_ns);
    shown.processes.push_back(
        {sim::host_pid_of(scene.state, load), load.kind, load.mig, step.util, step.memory, load.name});
  });
  for (std::uint32_t i = 0; i < std::min(scene.live.fault_count, sim::kMaxFaults); ++i) {
    const sim::Fault& fault = scene.live.faults[i];
    const bool concerns = fault.gpu < 0 || fault.gpu == static_cast<std::int32_t>(index);
    if (concerns && fault.from_ns <= scene.now_ns && scene.now_ns < fault.to_ns)
      shown.faults.push_back(fault_words(fault));
  }
  return shown;
}

// The field names of `lull status --json` where lull has that signal.
std::string field_of(const sim::ValueInfo& value) {
  switch (value.unit) {
    case sim::ValueUnit::percent: return fmt::format("{}_percent", value.name);
    case sim::ValueUnit::bytes: return fmt::format("{}_bytes", value.name);
    case sim::ValueUnit::watts: return fmt::format("{}_watts", value.name);
    case sim::ValueUnit::celsius: return fmt::format("{}_celsius", value.name);
    case sim::ValueUnit::megahertz: return fmt::format("{}_mhz", value.name);
    case sim::ValueUnit::bytes_per_second: return fmt::format("{}_bytes_per_second", value.name);
    case sim::ValueUnit::bits:
    case sim::ValueUnit::none: break;
  }
  return std::string(value.name);
}

std::string_view kind_word(std::uint32_t kind) {
  const bool graphics = (kind & sim::kGraphics) != 0;
  if ((kind & sim::kCompute) != 0) return graphics ? "both" : "compute";
  return graphics ? "graphics" : "mps";
}

void put_process(JsonWriter& json, const ShownProcess& process) {
  json.begin_object().member("pid", process.pid).member("type", kind_word(process.kind));
  json.member("util_percent", process.util).member("mem_used_bytes", process.memory);
  json.member("mig", process.mig == sim::kNone ? std::nullopt : std::optional(process.mig)).end_object();
}

void put_gpu(JsonWriter& json, const ShownGpu& shown, const sim::Gpu& gpu, unsigned index) {
  json.begin_object().member("index", index).member("uuid", std::string_view(gpu.uuid));
  json.member("name", printable(gpu.name)).member("mem_total_bytes", gpu.memory_total).member("asleep", shown.asleep);
  const auto info_of = [](unsigned m) -> const sim::ValueInfo& { return sim::value_info(static_cast<sim::Metric>(m)); };
  for (unsigned m = 0; m < sim::kMetrics; ++m) json.member(field_of(info_of(m)), shown.values[m]);
  json.key("set").begin_array();
  for (unsigned m = 0; m < sim::kMetrics; ++m)
    if (shown.set[m]) json.value(info_of(m).name);
  json.end_array().member("faults", shown.faults).key("processes").begin_array();
  for (const ShownProcess& process : shown.processes) put_process(json, process);
  json.end_array().key("mig_devices").begin_array();
  for (unsigned i = 0; i < gpu.mig_count; ++i)
    json.begin_object()
        .member("uuid", std::string_view(gpu.mig[i].uuid))
        .member("profile", std::string_view(gpu.mig[i].profile))
        .member("mem_total_bytes", gpu.mig[i].memory_total)
        .end_object();
  json.end_array().end_object();
}

std::string number(double value, std::string_view unit) {
  return std::isfinite(value) ? fmt::format("{:.0f}{}", value, unit) : "?";
}

void print_gpu(const ShownGpu& shown, const sim::Gpu& gpu, unsigned index) {
  const auto at = [&](sim::Metric metric) { return shown.values[static_cast<unsigned>(metric)]; };
  const auto mark = [&](sim::Metric metric) { return shown.set[static_cast<unsigned>(metric)] ? "*" : ""; };
  using enum sim::Metric;
  fmt::print("{:>3}  {:<26} util {}{}  memory {}{} of {}  {}{} of {}  {}{}\n", index, printable(gpu.name),
             number(at(util), "%"), mark(util), std::isfinite(at(mem_used)) ? format_size(at(mem_used)) : "?",
             mark(mem_used), format_size(static_cast<double>(gpu.memory_total)), number(at(power), " W"), mark(power),
             number(at(power_limit), " W"), number(at(temp), " C"), mark(temp));
  for (unsigned i = 0; i < gpu.mig_count; ++i)
    fmt::print("       mig {}: {} {}\n", i, gpu.mig[i].profile, gpu.mig[i].uuid);
  if (shown.asleep) fmt::print("       asleep\n");
  for (const std::string& fault : shown.faults) fmt::print("       fault: {}\n", fault);
  for (const ShownProcess& process : shown.processes)
    fmt::print("       pid {} ({}{}): util {}, memory {}\n", process.pid, kind_word(process.kind),
               process.mig == sim::kNone ? "" : fmt::format(", mig {}", process.mig), number(process.util, "%"),
               format_size(static_cast<double>(process.memory)));
}

}  // namespace

int sim_show(int argc, char** argv) {
  constexpr std::string_view kName = "sim show";
  Args args(argc, argv);
  bool json = false;
  while (args.more()) {
    if (args.flag("--help", "-h")) {
      fmt::print("{}", kShowHelp);
      return 0;
    }
    if (!args.flag("--json")) return refuse(kName, Error{unknown_option(args.peek(), kName, {"--json", "--help"})});
    json = true;
  }
  auto writer = open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const sim::State& state = writer->state();
  sim::Mapping mapping;
  if (mapping.open(simulation_folder()->c_str()) != 0) return cannot(kName, Error{"the simulation has just ended"});
  const std::int64_t now = mapping.now_ns();
  const auto shown = mapping.read([&](const sim::Live& live) {
    const sim::Scene scene{mapping.writable_state(), mapping.writable(), live, now};
    std::vector<ShownGpu> gpus;
    for (unsigned i = 0; i < state.gpu_count; ++i) gpus.push_back(look(scene, i));
    return gpus;
  });
  if (json) {
    JsonWriter out(2);
    out.begin_object().member("folder", printable(*simulation_folder()));
    out.member("time_seconds", static_cast<double>(now) / 1e9).member("speed", state.speed);
    out.member("driver_version", std::string_view(state.driver_version)).key("gpus").begin_array();
    for (unsigned i = 0; i < state.gpu_count; ++i) put_gpu(out, shown[i], state.gpus[i], i);
    fmt::print("{}\n", out.end_array().end_object().take());
    return 0;
  }
  fmt::print("{} simulated GPU{}, {} since the start{}\n", state.gpu_count, state.gpu_count == 1 ? "" : "s",
             format_duration(std::chrono::seconds(now / 1'000'000'000)),
             state.speed == 1 ? "" : fmt::format(", at {:g} times the speed", state.speed));
  for (unsigned i = 0; i < state.gpu_count; ++i) print_gpu(shown[i], state.gpus[i], i);
  return 0;
}

int sim_models(int argc, char** argv) {
  Args args(argc, argv);
  if (args.flag("--help", "-h")) {
    fmt::print("{}", kModelsHelp);
    return 0;
  }
  if (args.more())
    return refuse("sim models", Error{fmt::format("'{}' is one argument too many", printable(args.peek()))});
  for (const std::string_view name : sim::model_names()) {
    const auto gpu = sim::model(name);
    fmt::print("{:<11} {:<28} {:>10}  {:>3.0f} W idle, {:>3.0f} W with a context, {:>4.0f} W at most{}{}\n", name,
               gpu->name, format_size(static_cast<double>(gpu->memory_total)), gpu->power_idle, gpu->power_context,
               gpu->power_limit, gpu->fans == 0 ? ", no fan" : "", gpu->mig_capable != 0 ? ", MIG" : "");
  }
  return 0;
}

}  // namespace lull
