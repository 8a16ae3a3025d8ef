#include "sim/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/text.h"
#include "nvml/abi.h"
#include "sim/models.h"
#include "sim/scenario_read.h"

namespace lull::sim {
namespace {

constexpr double kBusy = 90;  // percent: what a load does that is not told what to do

double between(const Keyframe& from, const Keyframe& to, std::int64_t at_ns) {
  const double share = static_cast<double>(at_ns - from.at_ns) / static_cast<double>(to.at_ns - from.at_ns);
  return from.value + (to.value - from.value) * share;
}

// The value that `frames` have at a moment at or after the last of them but one.
double value_at(const std::vector<Keyframe>& frames, std::int64_t at_ns, double resting) {
  if (frames.empty()) return resting;
  if (frames.size() >= 2 && frames.back().at_ns > at_ns)  // in the middle of a ramp
    return between(frames[frames.size() - 2], frames.back(), at_ns);
  return std::isfinite(frames.back().value) ? frames.back().value : resting;
}

void add_frame(std::vector<Keyframe>& frames, std::int64_t at_ns, double value, bool ramp) {
  while (!frames.empty() && frames.back().at_ns >= at_ns) frames.pop_back();
  Keyframe frame;
  frame.at_ns = at_ns;
  frame.value = value;
  frame.ramp = ramp ? 1 : 0;
  frames.push_back(frame);
}

// A ramp that ends here or later would run towards the value that is add_frame here: it ends just before it.
void end_ramp(std::vector<Keyframe>& frames, std::int64_t at_ns) {
  const auto later = std::lower_bound(frames.begin(), frames.end(), at_ns,
                                      [](const Keyframe& frame, std::int64_t at) { return frame.at_ns < at; });
  if (later == frames.begin() || later == frames.end() || (later - 1)->ramp == 0) return;
  add_frame(frames, at_ns - 1, between(*(later - 1), *later, at_ns), false);
}

std::uint32_t hex_value(std::string_view text) {
  std::uint32_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number, 16);
  return number;
}

void apply_place(const GpuSpec& spec, Gpu& gpu) {
  if (!spec.uuid.empty()) copy_text(gpu.uuid, spec.uuid);
  if (!spec.uuid.empty() && gpu.vendor == Vendor::amd) gpu.unique_id = std::stoull(spec.uuid.substr(4), nullptr, 16);
  if (spec.numa) gpu.numa_node = static_cast<std::int32_t>(*spec.numa);
  if (spec.pci.empty()) return;
  const auto parts = split(std::string_view(spec.pci).substr(0, spec.pci.find('.')), ':');
  gpu.pci_domain = hex_value(parts[0]);
  gpu.pci_bus = hex_value(parts[1]);
  gpu.pci_device = hex_value(parts[2]);
}

GpuPlan make_gpu(const GpuSpec& spec, unsigned index, unsigned of, std::string_view host) {
  GpuPlan plan;
  plan.gpu = spec.gpu;
  place(plan.gpu, index, of, host);
  apply_place(spec, plan.gpu);
  if (!spec.mig.empty()) cut(plan.gpu, index, spec.mig, host);
  plan.gpu.mig_enabled = spec.mig_mode ? 1 : 0;
  for (unsigned metric = 0; metric < kMetrics; ++metric) {
    std::vector<Point> points;
    for (const Point& point : spec.timeline)
      if (point.metric == static_cast<Metric>(metric)) points.push_back(point);
    if (points.empty()) continue;
    plan.keyframes[metric] = make_keyframes(points, resting_value(plan.gpu, static_cast<Metric>(metric)));
    if (spec.repeat) plan.repeat_ns[metric] = spec.repeat->count();
  }
  return plan;
}

void connect(Gpu& from, std::uint8_t to, std::uint32_t links) {
  for (std::uint32_t i = 0; i < from.link_count && links > 0; ++i)
    if (from.link[i] == 0) {
      from.link[i] = to;
      --links;
    }
}

// NVLinks: those the scenario names, else as cards of that model come.
void wire_as_said(const Scenario& scenario, std::vector<GpuPlan>& gpus) {
  const TopologySpec& topology = scenario.topology;
  if (!topology.said) {
    std::vector<Gpu*> all;
    for (GpuPlan& plan : gpus) all.push_back(&plan.gpu);
    wire(all);
    return;
  }
  for (GpuPlan& plan : gpus) std::fill(std::begin(plan.gpu.link), std::end(plan.gpu.link), std::uint8_t{0});
  for (const auto& link : topology.nvlinks) {
    connect(gpus[link.a].gpu, static_cast<std::uint8_t>(link.b + 1), link.links);
    connect(gpus[link.b].gpu, static_cast<std::uint8_t>(link.a + 1), link.links);
  }
  if (topology.nvswitch)
    for (GpuPlan& plan : gpus) connect(plan.gpu, kLinkSwitch, plan.gpu.link_count);
}

std::vector<std::vector<std::uint8_t>> levels(const Scenario& scenario, const std::vector<GpuPlan>& gpus) {
  if (scenario.topology.switches.empty()) return {};  // from the NUMA nodes
  const std::size_t count = gpus.size();
  std::vector<std::size_t> of(count, count);  // the switch each is behind
  for (std::size_t s = 0; s < scenario.topology.switches.size(); ++s)
    for (const std::size_t gpu : scenario.topology.switches[s]) of[gpu] = s;
  std::vector matrix(count, std::vector<std::uint8_t>(count, nvml::kTopologyInternal));
  for (std::size_t a = 0; a < count; ++a)
    for (std::size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      const bool same_switch = of[a] == of[b] && of[a] != count;
      const bool same_node = gpus[a].gpu.numa_node == gpus[b].gpu.numa_node;
      matrix[a][b] = same_switch ? nvml::kTopologySingle : same_node ? nvml::kTopologyNode : nvml::kTopologySystem;
    }
  return matrix;
}

std::int64_t end_of_window(Duration at, const std::optional<Duration>& lasting) {
  return lasting ? (at + *lasting).count() : kForever;
}

// Only processes that are said to be there; the real ones are started by lull sim.
void add_processes(const Scenario& scenario, Plan& plan) {
  for (const ProcessSpec& process : scenario.processes) {
    if (!process.pid) continue;
    const LoadSteps made = make_steps(process.phases, 0);
    for (const std::size_t gpu : process.gpus) {
      Load load;
      load.pid = *process.pid;
      load.gpu = static_cast<std::uint32_t>(gpu);
      load.mig = process.mig.value_or(kNone);
      load.kind = process.kind;
      load.start_ns = process.at.count();
      load.end_ns = made.end_ns == kForever ? kForever : process.at.count() + made.end_ns;
      load.step_count = static_cast<std::uint32_t>(made.steps.size());
      std::copy(made.steps.begin(), made.steps.end(), std::begin(load.steps));
      copy_text(load.name, process.name);
      plan.processes.push_back(load);
    }
  }
}

}  // namespace

double resting_value(const Gpu& gpu, Metric metric) {
  switch (metric) {
    case Metric::power: return gpu.power_idle;
    case Metric::temp: return gpu.temp_idle;
    case Metric::clock: return gpu.clock_idle;
    case Metric::mem_clock: return gpu.mem_clock_idle;
    case Metric::pstate: return gpu.pstate_idle;
    case Metric::power_limit: return gpu.power_limit;
    default: return 0;
  }
}

std::vector<Keyframe> make_keyframes(const std::vector<Point>& points, double resting) {
  std::vector<Keyframe> frames;
  if (!points.empty() && points.front().at > Duration::zero()) add_frame(frames, 0, kDerive, false);
  for (const Point& point : points) {
    const std::int64_t at = point.at.count();
    if (point.over <= Duration::zero() || !std::isfinite(point.to)) {
      end_ramp(frames, at);
      add_frame(frames, at, point.to, false);
      continue;
    }
    add_frame(frames, at, value_at(frames, at, resting), true);
    add_frame(frames, at + point.over.count(), point.to, false);
  }
  return frames;
}

LoadSteps make_steps(const std::vector<PhaseSpec>& phases, std::uint64_t default_memory) {
  LoadSteps made;
  std::int64_t at = 0;
  double util = 0;
  std::uint64_t memory = default_memory;
  double counters[kCounters] = {kDerive, kDerive, kDerive};
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const PhaseSpec& phase = phases[i];
    util = phase.util.value_or(i == 0 ? kBusy : util);
    memory = phase.memory.value_or(memory);
    Step step;
    step.at_ns = at;
    step.util = util;
    step.memory = memory;
    for (unsigned k = 0; k < kCounters; ++k) step.counters[k] = counters[k] = phase.counters[k].value_or(counters[k]);
    made.steps.push_back(step);
    if (!phase.lasting) return made;
    at += phase.lasting->count();
  }
  made.end_ns = at;
  return made;
}

Result<Plan> make_plan(const Scenario& scenario) {
  Plan plan;
  plan.speed = scenario.speed;
  plan.driver_version = scenario.driver;
  plan.sample_period_ns = scenario.sample_period.count();
  plan.sample_capacity = scenario.sample_capacity;
  plan.sample_epoch = scenario.sample_epoch;
  for (unsigned i = 0; i < kCosts; ++i) plan.cost_ns[i] = scenario.costs[i].count();
  plan.wsl = scenario.wsl;
  const auto count = static_cast<unsigned>(scenario.gpus.size());
  for (unsigned i = 0; i < count; ++i) plan.gpus.push_back(make_gpu(scenario.gpus[i], i, count, scenario.host));
  wire_as_said(scenario, plan.gpus);
  std::vector<Gpu*> all;
  for (GpuPlan& gpu : plan.gpus) all.push_back(&gpu.gpu);
  number_cards(all);
  plan.topology = levels(scenario, plan.gpus);
  for (const FaultSpec& fault : scenario.faults) {
    const auto faults = state_faults(fault, fault.at.count(), end_of_window(fault.at, fault.lasting));
    plan.faults.insert(plan.faults.end(), faults.begin(), faults.end());
  }
  if (plan.faults.size() > kMaxFaults)
    return fail(fmt::format("{} faults: at most {}", plan.faults.size(), kMaxFaults));
  add_processes(scenario, plan);
  if (plan.processes.size() > kMaxLoads)
    return fail(fmt::format("{} processes: at most {}", plan.processes.size(), kMaxLoads));
  return plan;
}

}  // namespace lull::sim
