#include "sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/models.h"
#include "sim/scenario_read.h"
#include "sim/topology.h"
#include "sim/trace_csv.h"

namespace lull::sim {
namespace {

using Kind = Node::Kind;

constexpr std::size_t kMaxPoints = 100'000;

// What a [[gpu]] table may override of its model, besides starting values.
void set_field(double& field, double number) { field = number; }
void set_field(std::uint32_t& field, double number) { field = static_cast<std::uint32_t>(number); }

Result<std::vector<Point>> read_values(const Reader& reader, const Node& table, Duration at, Duration over) {
  std::vector<Point> points;
  for (const auto& [key, node] : table.members) {
    const bool both = key == "pcie";
    const auto value = find_value(both ? "pcie_rx" : key);
    if (!value) continue;  // the caller has refused the names that are nothing at all
    const double to = TRY(reader.value(node, **value)) / (both ? 2 : 1);
    points.push_back({at, over, (*value)->metric, to});
    if (both) points.push_back({at, over, Metric::pcie_tx, to});
  }
  return points;
}

std::vector<std::string_view> with_value_names(std::vector<std::string_view> names) {
  for (const ValueInfo& value : value_table()) names.push_back(value.name);
  names.emplace_back("pcie");
  return names;
}

Result<> read_timeline(const Reader& reader, const Node& list, GpuSpec& gpu) {
  TRY(reader.expect(list, Kind::list, "timeline", "a list of tables, [[gpu.timeline]]"));
  Duration last{};
  for (const Node& entry : list.list) {
    TRY(reader.known(entry, "[[gpu.timeline]]", with_value_names({"at", "over"})));
    const Node* at_node = entry.find("at");
    if (at_node == nullptr) return reader.refuse(entry, "an entry of the timeline needs a time, such as at = \"10s\"");
    const Duration at = TRY(reader.duration(*at_node, "at"));
    if (at < last) return reader.refuse(*at_node, "a timeline goes forward: this is before the entry above it");
    last = at;
    Duration over{};
    if (const Node* node = entry.find("over")) over = TRY(reader.duration(*node, "over"));
    const auto points = TRY(read_values(reader, entry, at, over));
    if (points.empty()) return reader.refuse(entry, "this entry changes nothing: it needs a value, such as util = 90");
    gpu.timeline.insert(gpu.timeline.end(), points.begin(), points.end());
    if (gpu.timeline.size() > kMaxPoints) return reader.refuse(entry, "a timeline of more than 100000 steps");
  }
  return {};
}

Result<> read_mig(const Reader& reader, const Node& node, GpuSpec& gpu) {
  if (gpu.gpu.mig_capable == 0) return reader.refuse(node, fmt::format("{} has no MIG", gpu.gpu.name));
  gpu.mig_mode = true;
  if (node.kind == Kind::boolean) {
    gpu.mig_mode = node.truth;
    return {};
  }
  TRY(reader.expect(node, Kind::list, "mig", "a list of profiles such as [\"3g.40gb\", \"1g.10gb\"]"));
  for (const Node& entry : node.list) {
    gpu.mig.push_back(TRY(reader.text(entry, "a MIG profile")));
    if (const auto right = check_mig(gpu.mig.back(), gpu.gpu); !right) return reader.refuse(entry, right.error().what);
  }
  if (Gpu trial = gpu.gpu; !gpu.mig.empty() && !cut(trial, 0, gpu.mig))
    return reader.refuse(node, fmt::format("{} cannot be cut so: these do not fit together", gpu.gpu.name));
  return {};
}

Result<> read_overrides(const Reader& reader, const Node& table, GpuSpec& spec) {
  Gpu& gpu = spec.gpu;
  const auto number = [&](std::string_view key, auto& field, double low, double high) -> Result<> {
    if (const Node* node = table.find(key)) set_field(field, TRY(reader.number(*node, key, low, high)));
    return {};
  };
  TRY(number("idle_power", gpu.power_idle, 0, 5000));
  TRY(number("context_power", gpu.power_context, 0, 5000));
  TRY(number("max_clock", gpu.clock_boost, 1, 10000));
  TRY(number("pcie_generation", gpu.pcie_generation, 1, 7));
  TRY(number("pcie_width", gpu.pcie_width, 1, 32));
  TRY(number("fans", gpu.fans, 0, 8));
  if (const Node* node = table.find("name")) {
    const std::string name = TRY(reader.text(*node, "name"));
    if (name.empty() || name.size() >= sizeof gpu.name)
      return reader.refuse(*node, "a name of 1 to 95 bytes would be right");
    copy_text(gpu.name, name);
  }
  if (const Node* node = table.find("memory")) {
    gpu.memory_total = TRY(reader.size(*node, "memory"));
    if (gpu.memory_total < (std::uint64_t{1} << 30) || gpu.memory_total > (std::uint64_t{1} << 44))
      return reader.refuse(*node, "memory of 1GiB to 16TiB would be right");
  }
  if (const Node* node = table.find("energy_counter")) gpu.energy_counter = TRY(reader.truth(*node, "energy_counter"));
  if (const Node* node = table.find("sample_buffer")) gpu.sample_buffer = TRY(reader.truth(*node, "sample_buffer"));
  if (const Node* node = table.find("numa"))
    spec.numa = static_cast<std::uint32_t>(TRY(reader.number(*node, "numa", 0, 63)));
  if (const Node* node = table.find("uuid")) spec.uuid = TRY(reader.uuid(*node));
  if (const Node* node = table.find("pci")) spec.pci = TRY(reader.pci(*node));
  return {};
}

Result<> read_gpu(const Reader& reader, const Node& table, Scenario& scenario) {
  const auto names = with_value_names({"model",         "count",
                                       "name",          "memory",
                                       "fans",          "numa",
                                       "uuid",          "pci",
                                       "idle_power",    "context_power",
                                       "max_clock",     "pcie_generation",
                                       "pcie_width",    "energy_counter",
                                       "sample_buffer", "timeline",
                                       "repeat",        "mig",
                                       "trace",         "trace_gpu"});
  TRY(reader.known(table, "[[gpu]]", names));
  const Node* model = table.find("model");
  if (model == nullptr) return reader.refuse(table, "a GPU needs a model, such as model = \"H100\"");
  const auto card = sim::model(TRY(reader.text(*model, "model")));
  if (!card) return reader.refuse(*model, unknown_model(model->text));
  GpuSpec gpu;
  gpu.gpu = *card;
  std::size_t count = 1;
  if (const Node* node = table.find("count"))
    count = static_cast<std::size_t>(TRY(reader.number(*node, "count", 1, static_cast<double>(kMaxGpus))));
  TRY(read_overrides(reader, table, gpu));
  if (count > 1 && !(gpu.uuid.empty() && gpu.pci.empty()))
    return reader.refuse(table, "a uuid or pci address is one GPU's own: give each its own [[gpu]]");
  gpu.timeline = TRY(read_values(reader, table, {}, {}));
  if (const Node* node = table.find("timeline")) TRY(read_timeline(reader, *node, gpu));
  if (const Node* node = table.find("repeat")) {
    gpu.repeat = TRY(reader.duration(*node, "repeat"));
    if (gpu.timeline.empty() || *gpu.repeat <= gpu.timeline.back().at + gpu.timeline.back().over)
      return reader.refuse(*node, "repeat must be later than the end of the timeline");
  }
  if (const Node* node = table.find("mig")) TRY(read_mig(reader, *node, gpu));
  if (const Node* node = table.find("trace")) {
    if (table.find("timeline") != nullptr) return reader.refuse(*node, "a GPU follows a trace or a timeline, not both");
    for (std::size_t i = 0; i < count; ++i) {
      GpuSpec one = gpu;
      TRY(reader.trace(*node, table.find("trace_gpu"), i, one));
      scenario.gpus.push_back(std::move(one));
    }
  } else {
    scenario.gpus.insert(scenario.gpus.end(), count, gpu);
  }
  if (scenario.gpus.size() > kMaxGpus)
    return reader.refuse(table, fmt::format("more than {} GPUs: the simulator has room for that many", kMaxGpus));
  return {};
}

Result<FaultSpec> read_fault(const Reader& reader, const Node& table, std::size_t gpus) {
  TRY(reader.known(table, "[[fault]]", {"gpu", "kind", "function", "at", "for"}));
  FaultSpec fault;
  const Node* kind = table.find("kind");
  if (kind == nullptr) return reader.refuse(table, "a fault needs a kind, such as kind = \"lost\" or \"hang=8s\"");
  const auto parsed = parse_fault(TRY(reader.text(*kind, "kind")));
  if (!parsed) return reader.refuse(*kind, parsed.error().what);
  fault.name = parsed->name;
  fault.hang = parsed->hang;
  if (const Node* node = table.find("gpu")) {
    if (of_whole_driver(fault.name) && !(node->kind == Kind::text && node->text == "all"))
      return reader.refuse(*node,
                           fmt::format("{} is of the whole driver: gpu = \"all\", or no gpu", fault_name(fault.name)));
    fault.gpus = TRY(reader.gpus(*node, gpus));
  }
  if (const Node* node = table.find("function")) fault.function = TRY(reader.function(*node));
  if (const Node* node = table.find("at")) fault.at = TRY(reader.duration(*node, "at"));
  if (const Node* node = table.find("for")) fault.lasting = TRY(reader.duration(*node, "for"));
  return fault;
}

Result<PhaseSpec> read_phase(const Reader& reader, const Node& table) {
  PhaseSpec phase;
  if (const Node* node = table.find("util")) phase.util = TRY(reader.number(*node, "util", 0, 100));
  if (const Node* node = table.find("mem")) phase.memory = TRY(reader.size(*node, "mem"));
  if (const Node* node = table.find("for")) phase.lasting = TRY(reader.duration(*node, "for"));
  return phase;
}

Result<ProcessSpec> read_process(const Reader& reader, const Node& table, std::size_t gpus) {
  TRY(reader.known(table, "[[process]]", {"gpu", "mig", "pid", "name", "type", "at", "for", "util", "mem", "then"}));
  ProcessSpec process;
  const Node* gpu = table.find("gpu");
  if (gpu == nullptr) return reader.refuse(table, "a process needs a GPU, such as gpu = 0");
  process.gpus = TRY(reader.gpus(*gpu, gpus));
  if (const Node* node = table.find("name")) process.name = TRY(reader.text(*node, "name"));
  if (const Node* node = table.find("at")) process.at = TRY(reader.duration(*node, "at"));
  if (const Node* node = table.find("type")) {
    const std::string type = TRY(reader.text(*node, "type"));
    if (type != "compute" && type != "graphics" && type != "both" && type != "mps")
      return reader.refuse(*node, "type is \"compute\", \"graphics\", \"both\" or \"mps\"");
    process.kind = type == "compute"    ? kCompute
                   : type == "graphics" ? kGraphics
                   : type == "mps"      ? kMps
                                        : kCompute | kGraphics;
  }
  if (const Node* node = table.find("mig"))
    process.mig = static_cast<std::uint32_t>(TRY(reader.number(*node, "mig", 0, kMaxMig - 1)));
  if (const Node* node = table.find("pid"))
    process.pid = static_cast<std::uint32_t>(TRY(reader.number(*node, "pid", 1, 4194304)));
  process.phases.push_back(TRY(read_phase(reader, table)));
  if (const Node* node = table.find("then")) {
    TRY(reader.expect(*node, Kind::list, "then", "a list of phases, [{ util = 0, for = \"1m\" }]"));
    for (const Node& entry : node->list) {
      TRY(reader.known(entry, "then", {"util", "mem", "for"}));
      if (!process.phases.back().lasting)
        return reader.refuse(entry, "the phase before this one never ends: it needs a for");
      process.phases.push_back(TRY(read_phase(reader, entry)));
      if (process.phases.size() >= kMaxSteps)
        return reader.refuse(entry, fmt::format("more phases than the {} there is room for", kMaxSteps - 1));
    }
  }
  return process;
}

Result<> read_head(const Reader& reader, const Node& root, Scenario& scenario) {
  TRY(reader.known(root, "", {"speed", "driver", "gpu", "fault", "process", "topology"}));
  if (const Node* node = root.find("speed")) scenario.speed = TRY(reader.number(*node, "speed", 0.001, 1e6));
  if (const Node* node = root.find("driver")) {
    scenario.driver = TRY(reader.text(*node, "driver"));
    if (scenario.driver.empty() || scenario.driver.size() > 40 ||
        scenario.driver.find_first_not_of("0123456789.") != std::string::npos)
      return reader.refuse(*node, "a driver version is digits and points, such as \"535.183.01\"");
  }
  return {};
}

Result<> check_unique(const Reader& reader, const Node& root, const Scenario& scenario) {
  for (std::size_t i = 0; i < scenario.gpus.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const GpuSpec &a = scenario.gpus[i], &b = scenario.gpus[j];
      if (!a.uuid.empty() && a.uuid == b.uuid)
        return reader.refuse(root, fmt::format("GPUs {} and {} have the same uuid", j, i));
      if (!a.pci.empty() && a.pci == b.pci)
        return reader.refuse(root, fmt::format("GPUs {} and {} have the same pci address", j, i));
    }
  return {};
}

}  // namespace

Result<Scenario> parse_scenario(std::string_view toml, std::string_view name, const FileReader& read) {
  const Node root = TRY(parse_toml(toml, name));
  const Reader reader(name, read);
  Scenario scenario;
  TRY(read_head(reader, root, scenario));
  for (const Node& table : TRY(reader.tables(root, "gpu"))) TRY(read_gpu(reader, table, scenario));
  if (scenario.gpus.empty()) return fail(fmt::format("{}: no GPU: a scenario needs a [[gpu]] table", printable(name)));
  TRY(check_unique(reader, root, scenario));
  const std::size_t count = scenario.gpus.size();
  for (const Node& table : TRY(reader.tables(root, "fault")))
    scenario.faults.push_back(TRY(read_fault(reader, table, count)));
  for (const Node& table : TRY(reader.tables(root, "process")))
    scenario.processes.push_back(TRY(read_process(reader, table, count)));
  if (const Node* node = root.find("topology")) TRY(read_topology(reader, *node, scenario));
  return scenario;
}

Result<Scenario> load_scenario(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::unexpected(Error(text.error()).during("the scenario cannot be read"));
  const auto folder = std::filesystem::path(path).parent_path();
  return parse_scenario(*text, path, [folder](const std::string& file) { return read_file((folder / file).string()); });
}

}  // namespace lull::sim
