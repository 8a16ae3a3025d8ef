#include "sim/show.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <vector>

#include "base/json_writer.h"
#include "base/text.h"
#include "base/units.h"
#include "nvml/abi.h"
#include "sim/evaluate.h"
#include "sim/opened.h"
#include "sim/values.h"

namespace lull::sim {
namespace {

struct ShownProcess {
  std::uint32_t pid = 0;
  std::uint32_t kind = 0;
  std::uint32_t mig = kNone;
  double util = 0;
  std::uint64_t memory = 0;
  std::string name;
};

struct ShownGpu {
  std::array<double, kMetrics> values{};
  std::array<bool, kMetrics> set{};
  std::vector<ShownProcess> processes;
  std::vector<std::string> faults;
  bool asleep = false;
};

std::string fault_text(const Fault& fault) {
  std::string text = fault.kind == FaultKind::no_util ? "no-util" : "";
  switch (fault.kind == FaultKind::file ? nvml::Return::success : static_cast<nvml::Return>(fault.code)) {
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
  if (fault.kind == FaultKind::dstate) text = "hang=dstate";
  if (fault.kind == FaultKind::garbage) text = "garbage";
  if (fault.kind == FaultKind::file)
    text = fault.code == EBUSY    ? "ebusy"
           : fault.code == EPERM  ? "eperm"
           : fault.code == EINVAL ? "einval"
           : fault.code == ENOENT ? "enoent"
                                  : "empty";
  if (fault.hang_ns > 0) text = fmt::format("hang={}", format_duration(Duration(fault.hang_ns)));
  if (fault.function[0] != '\0')
    text += fmt::format(" --{} {}", names("nvml*", fault.function) ? "function" : "file", fault.function);
  return text;
}

ShownGpu look(const Scene& scene, unsigned index) {
  ShownGpu shown;
  shown.asleep = scene.state.touched[index].asleep.load(std::memory_order_relaxed) != 0;
  for (unsigned m = 0; m < kMetrics; ++m) {
    shown.values[m] = value(scene, index, static_cast<Metric>(m), scene.now_ns);
    const std::uint32_t last = scene.live.last_set[index][m];
    shown.set[m] = last < kMaxSets && !std::isnan(scene.live.sets[last].value);
  }
  each_load(scene, index, scene.now_ns, [&](const Load& load) {
    const Step& step = step_at(load, scene.now_ns);
    shown.processes.push_back({host_pid_of(scene.state, load), load.kind, load.mig, step.util, step.memory, load.name});
  });
  for (std::uint32_t i = 0; i < std::min(scene.live.fault_count, kMaxFaults); ++i) {
    const Fault& fault = scene.live.faults[i];
    const bool concerns = fault.gpu < 0 || fault.gpu == static_cast<std::int32_t>(index);
    if (concerns && fault.from_ns <= scene.now_ns && scene.now_ns < fault.to_ns)
      shown.faults.push_back(fault_text(fault));
  }
  return shown;
}

// The field names of `lull status --json` where lull has that signal.
std::string field_of(const ValueInfo& value) {
  switch (value.unit) {
    case ValueUnit::percent: return fmt::format("{}_percent", value.name);
    case ValueUnit::bytes: return fmt::format("{}_bytes", value.name);
    case ValueUnit::watts: return fmt::format("{}_watts", value.name);
    case ValueUnit::celsius: return fmt::format("{}_celsius", value.name);
    case ValueUnit::megahertz: return fmt::format("{}_mhz", value.name);
    case ValueUnit::bytes_per_second: return fmt::format("{}_bytes_per_second", value.name);
    case ValueUnit::bits:
    case ValueUnit::none: break;
  }
  return std::string(value.name);
}

std::string_view kind_word(std::uint32_t kind) {
  const bool graphics = (kind & kGraphics) != 0;
  if ((kind & kCompute) != 0) return graphics ? "both" : "compute";
  return graphics ? "graphics" : "mps";
}

void put_process(JsonWriter& json, const ShownProcess& process) {
  json.begin_object().member("pid", process.pid).member("type", kind_word(process.kind));
  json.member("util_percent", process.util).member("mem_used_bytes", process.memory);
  json.member("mig", process.mig == kNone ? std::nullopt : std::optional(process.mig)).end_object();
}

void put_gpu(JsonWriter& json, const ShownGpu& shown, const Gpu& gpu, unsigned index) {
  json.begin_object().member("index", index).member("uuid", std::string_view(gpu.uuid));
  json.member("vendor", kVendorNames[static_cast<std::size_t>(gpu.vendor)]);
  json.member("name", printable(gpu.name)).member("mem_total_bytes", gpu.memory_total).member("asleep", shown.asleep);
  const auto info_of = [](unsigned m) -> const ValueInfo& { return value_info(static_cast<Metric>(m)); };
  for (unsigned m = 0; m < kMetrics; ++m) json.member(field_of(info_of(m)), shown.values[m]);
  json.key("set").begin_array();
  for (unsigned m = 0; m < kMetrics; ++m)
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

void put_gpu(std::string& out, const ShownGpu& shown, const Gpu& gpu, unsigned index) {
  const auto at = [&](Metric metric) { return shown.values[static_cast<unsigned>(metric)]; };
  const auto mark = [&](Metric metric) { return shown.set[static_cast<unsigned>(metric)] ? "*" : ""; };
  using enum Metric;
  out += fmt::format("{:>3}  {:<26} util {}{}  memory {}{} of {}  {}{} of {}  {}{}\n", index, printable(gpu.name),
                     number(at(util), "%"), mark(util), std::isfinite(at(mem_used)) ? format_size(at(mem_used)) : "?",
                     mark(mem_used), format_size(static_cast<double>(gpu.memory_total)), number(at(power), " W"),
                     mark(power), number(at(power_limit), " W"), number(at(temp), " C"), mark(temp));
  for (unsigned i = 0; i < gpu.mig_count; ++i)
    out += fmt::format("       mig {}: {} {}\n", i, gpu.mig[i].profile, gpu.mig[i].uuid);
  if (shown.asleep) out += fmt::format("       asleep\n");
  for (const std::string& fault : shown.faults) out += fmt::format("       fault: {}\n", fault);
  for (const ShownProcess& process : shown.processes)
    out += fmt::format("       pid {} ({}{}): util {}, memory {}\n", process.pid, kind_word(process.kind),
                       process.mig == kNone ? "" : fmt::format(", mig {}", process.mig), number(process.util, "%"),
                       format_size(static_cast<double>(process.memory)));
}

struct Shown {
  std::int64_t now = 0;
  std::vector<ShownGpu> gpus;
};

Result<Shown> look(const Writer& writer) {
  Mapping mapping;
  if (mapping.open(TRY(simulation_folder()).c_str()) != 0) return fail("the simulation has just ended");
  Shown shown{.now = mapping.now_ns(), .gpus = {}};
  shown.gpus = mapping.read([&](const Live& live) {
    const Scene scene{mapping.writable_state(), mapping.writable(), live, shown.now};
    std::vector<ShownGpu> gpus;
    for (unsigned i = 0; i < writer.state().gpu_count; ++i) gpus.push_back(look(scene, i));
    return gpus;
  });
  return shown;
}

}  // namespace

Result<std::string> show_json(const Writer& writer) {
  const Shown shown = TRY(look(writer));
  const State& state = writer.state();
  JsonWriter out(2);
  out.begin_object().member("folder", printable(TRY(simulation_folder())));
  out.member("time_seconds", static_cast<double>(shown.now) / 1e9).member("speed", state.speed);
  out.member("driver_version", std::string_view(state.driver_version)).key("gpus").begin_array();
  for (unsigned i = 0; i < state.gpu_count; ++i) put_gpu(out, shown.gpus[i], state.gpus[i], i);
  return out.end_array().end_object().take() + "\n";
}

Result<std::string> show_text(const Writer& writer) {
  const Shown shown = TRY(look(writer));
  const State& state = writer.state();
  std::string out =
      fmt::format("{} simulated GPU{}, {} since the start{}\n", state.gpu_count, state.gpu_count == 1 ? "" : "s",
                  format_duration(std::chrono::seconds(shown.now / 1'000'000'000)),
                  state.speed == 1 ? "" : fmt::format(", at {:g} times the speed", state.speed));
  for (unsigned i = 0; i < state.gpu_count; ++i) put_gpu(out, shown.gpus[i], state.gpus[i], i);
  return out;
}

}  // namespace lull::sim
