#include "sim/scenario.h"

#include <fmt/format.h>

#include <filesystem>

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

Result<FaultSpec> read_fault(const Reader& reader, const Node& table, const std::vector<Vendor>& gpus) {
  TRY(reader.known(table, "[[fault]]", {"gpu", "kind", "function", "file", "at", "for"}));
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
  if (const Node* node = table.find("file")) {
    const auto name = parse_file_name(TRY(reader.text(*node, "file")));
    if (!name) return reader.refuse(*node, name.error().what);
    if (!fault.function.empty()) return reader.refuse(*node, "a fault is of a function or of a file, not of both");
    fault.function = *name;
  }
  if (const Node* node = table.find("at")) fault.at = TRY(reader.duration(*node, "at"));
  if (const Node* node = table.find("for")) fault.lasting = TRY(reader.duration(*node, "for"));
  return fault;
}

Result<PhaseSpec> read_phase(const Reader& reader, const Node& table) {
  PhaseSpec phase;
  if (const Node* node = table.find("util")) phase.util = TRY(reader.number(*node, "util", 0, 100));
  for (unsigned i = 0; i < kCounters; ++i)
    if (const char* name = counter_name(i); const Node* node = table.find(name))
      phase.counters[i] = TRY(reader.number(*node, name, 0, 100));
  if (const Node* node = table.find("mem")) phase.memory = TRY(reader.size(*node, "mem"));
  if (const Node* node = table.find("for")) phase.lasting = TRY(reader.duration(*node, "for"));
  return phase;
}

Result<ProcessSpec> read_process(const Reader& reader, const Node& table, const std::vector<Vendor>& gpus) {
  TRY(reader.known(table, "[[process]]", {"gpu", "mig", "pid", "name", "type", "at", "for", "util", "mem", "then"}));
  ProcessSpec process;
  const Node* gpu = table.find("gpu");
  if (gpu == nullptr) return reader.refuse(table, "a process needs a GPU, such as gpu = 0");
  process.gpus = TRY(reader.gpus(*gpu, gpus));
  if (const Node* node = table.find("name")) process.name = TRY(reader.text(*node, "name"));
  if (const Node* node = table.find("at")) process.at = TRY(reader.duration(*node, "at"));
  if (const Node* node = table.find("type")) {
    const std::string type = TRY(reader.text(*node, "type"));
    if (type != "compute" && type != "graphics" && type != "both" && type != "mps" && type != "mps-server")
      return reader.refuse(*node, "type is \"compute\", \"graphics\", \"both\", \"mps\" or \"mps-server\"");
    process.mps_server = type == "mps-server";
    process.kind = type == "compute"    ? kCompute
                   : process.mps_server ? kCompute
                   : type == "graphics" ? kGraphics
                   : type == "mps"      ? kMps
                                        : kCompute | kGraphics;
  }
  if (const Node* node = table.find("mig"))
    process.mig = static_cast<std::uint32_t>(TRY(reader.number(*node, "mig", 0, kMaxMig - 1)));
  if (const Node* node = table.find("pid"))
    process.pid = static_cast<std::uint32_t>(TRY(reader.number(*node, "pid", 1, 4194304)));
  process.phases.push_back(TRY(read_phase(reader, table)));
  if (process.mps_server) {
    if (process.name.empty()) process.name = kMpsServerName;
    process.phases[0].util = process.phases[0].util.value_or(0);
    process.phases[0].memory = process.phases[0].memory.value_or(kMpsServerMemory);
  }
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

Result<> read_samples(const Reader& reader, const Node& root, Scenario& scenario) {
  if (const Node* node = root.find("sample_period")) {
    scenario.sample_period = TRY(reader.duration(*node, "sample_period"));
    if (scenario.sample_period < std::chrono::milliseconds(1) || scenario.sample_period > std::chrono::minutes(1))
      return reader.refuse(*node, "a sample period of 1ms to 1m would be right");
  }
  if (const Node* node = root.find("sample_capacity"))
    scenario.sample_capacity =
        static_cast<std::uint32_t>(TRY(reader.number(*node, "sample_capacity", 1, kMaxSampleCapacity)));
  if (const Node* node = root.find("sample_clock")) {
    const std::string clock = TRY(reader.text(*node, "sample_clock"));
    if (clock != "boot" && clock != "epoch") return reader.refuse(*node, "sample_clock is \"boot\" or \"epoch\"");
    scenario.sample_epoch = clock == "epoch";
  }
  return {};
}

Result<> read_head(const Reader& reader, const Node& root, Scenario& scenario) {
  std::vector<std::string_view> names = {"speed",     "driver",       "gpu",           "fault",
                                         "process",   "topology",     "sample_period", "wsl",
                                         "call_cost", "process_view", "sample_clock",  "sample_capacity"};
  std::vector<std::string> costs;  // cost_lists, …
  for (const std::string_view name : kCostNames) costs.push_back(fmt::format("cost_{}", name));
  names.insert(names.end(), costs.begin(), costs.end());
  TRY(reader.known(root, "", names));
  if (const Node* node = root.find("speed")) scenario.speed = TRY(reader.number(*node, "speed", 0.001, 1e6));
  if (const Node* node = root.find("driver")) {
    scenario.driver = TRY(reader.text(*node, "driver"));
    if (scenario.driver.empty() || scenario.driver.size() > 40 ||
        scenario.driver.find_first_not_of("0123456789.") != std::string::npos)
      return reader.refuse(*node, "a driver version is digits and points, such as \"535.183.01\"");
  }
  if (const Node* node = root.find("wsl")) scenario.wsl = TRY(reader.truth(*node, "wsl"));
  if (const Node* node = root.find("call_cost")) {
    const auto right = parse_costs(TRY(reader.text(*node, "call_cost")), scenario.costs);
    if (!right) return reader.refuse(*node, right.error().what);
  }
  for (unsigned i = 0; i < kCosts; ++i)
    if (const Node* node = root.find(costs[i])) {
      scenario.costs[i] = TRY(reader.duration(*node, costs[i]));
      if (scenario.costs[i] > std::chrono::seconds(10)) return reader.refuse(*node, "that is too much for one call");
    }
  return read_samples(reader, root, scenario);
}

// What draws on a screen: a desktop at rest.
ProcessSpec screen_on(std::size_t gpu) {
  ProcessSpec process;
  process.gpus = {gpu};
  process.name = "/usr/lib/xorg/Xorg -core :0 -seat seat0 -auth /var/run/lightdm/root/:0";
  process.kind = kGraphics;
  process.phases.push_back({.util = 7, .memory = std::uint64_t{450} << 20, .lasting = std::nullopt});
  return process;
}

Result<> check_unique(const Reader& reader, const Node& root, const Scenario& scenario) {
  for (std::size_t i = 0; i < scenario.gpus.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const GpuSpec &a = scenario.gpus[i], &b = scenario.gpus[j];
      if (!a.pci.empty() && a.pci == b.pci)
        return reader.refuse(root, fmt::format("GPUs {} and {} have the same pci address", j, i));
    }
  return {};
}

}  // namespace

Result<Scenario> parse_scenario(std::string_view text, std::string_view name, const FileReader& read) {
  const Node root = TRY(toml::parse(text, name));
  const Reader reader(name, read);
  Scenario scenario;
  TRY(read_head(reader, root, scenario));
  GpuSpec every;
  if (scenario.wsl) every.gpu.quirks |= kNoUtil | kNoProcessLists;
  if (const Node* node = root.find("process_view")) every.gpu.process_view = TRY(read_process_view(reader, *node));
  for (const Node& table : TRY(reader.tables(root, "gpu"))) TRY(read_gpu(reader, table, every, scenario));
  order_by_vendor(scenario.gpus);
  if (scenario.gpus.empty()) return fail(fmt::format("{}: no GPU: a scenario needs a [[gpu]] table", printable(name)));
  TRY(check_unique(reader, root, scenario));
  const std::vector<Vendor> vendors = vendors_of(scenario.gpus);
  for (const Node& table : TRY(reader.tables(root, "fault")))
    scenario.faults.push_back(TRY(read_fault(reader, table, vendors)));
  for (const Node& table : TRY(reader.tables(root, "process")))
    scenario.processes.push_back(TRY(read_process(reader, table, vendors)));
  if (const Node* node = root.find("topology")) TRY(read_topology(reader, *node, scenario));
  for (std::size_t gpu = 0; gpu < scenario.gpus.size(); ++gpu)
    if ((scenario.gpus[gpu].gpu.quirks & kDisplayActive) != 0) scenario.processes.push_back(screen_on(gpu));
  return scenario;
}

Result<Scenario> load_scenario(const std::string& path) {
  const auto text = read_file(path);
  if (!text) return std::unexpected(Error(text.error()).during("the scenario cannot be read"));
  const auto folder = std::filesystem::path(path).parent_path();
  return parse_scenario(*text, path, [folder](const std::string& file) { return read_file((folder / file).string()); });
}

}  // namespace lull::sim
