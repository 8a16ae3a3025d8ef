// The [[gpu]] tables of a scenario: what the cards are, what is odd about them, and
// what happens to their values over time.

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"
#include "sim/models.h"
#include "sim/scenario_read.h"

namespace lull::sim {
namespace {

using Kind = Node::Kind;

constexpr std::size_t kMaxPoints = 100'000;

// What a [[gpu]] table may override of its model, besides starting values.
void set_field(double& field, double number) { field = number; }
void set_field(std::uint32_t& field, double number) { field = static_cast<std::uint32_t>(number); }

Result<std::vector<Point>> read_values(const Reader& reader, const Node& table, Duration at, Duration over) {
  std::vector<Point> points;
  for (const auto& [key, node, line, column] : table.members) {
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

Result<> read_quirks(const Reader& reader, const Node& table, GpuSpec& spec) {
  Gpu& gpu = spec.gpu;
  const auto quirk = [&](std::string_view key, std::uint32_t bit) -> Result<> {
    if (const Node* node = table.find(key))
      gpu.quirks = TRY(reader.truth(*node, key)) ? gpu.quirks | bit : gpu.quirks & ~bit;
    return {};
  };
  TRY(quirk("sample_dry", kSampleBufferDry));
  TRY(quirk("memory_total_zero", kMemoryTotalZero));
  TRY(quirk("unified_memory", kUnifiedMemory));
  TRY(quirk("display", kDisplayActive));
  if (const Node* node = table.find("asleep")) gpu.begins_asleep = TRY(reader.truth(*node, "asleep")) ? 1 : 0;
  if (const Node* node = table.find("attach")) {
    gpu.attach_ns = TRY(reader.duration(*node, "attach")).count();
    gpu.persistence = 0;  // which is why it takes time
  }
  if (const Node* node = table.find("scrub")) gpu.scrub_ns = TRY(reader.duration(*node, "scrub")).count();
  if (const Node* node = table.find("module_power"))
    gpu.module_power = TRY(reader.number(*node, "module_power", 0, 5000));
  if (const Node* node = table.find("reserved")) {
    gpu.memory_reserved = TRY(reader.size(*node, "reserved"));
    if (gpu.memory_reserved > gpu.memory_total / 2) return reader.refuse(*node, "that is more than half of its memory");
  }
  if (const Node* node = table.find("process_view")) gpu.process_view = TRY(read_process_view(reader, *node));
  return {};
}

// ",power1_cap,gpu_metrics," as Gpu::hidden has it.
Result<std::string> read_hidden(const Reader& reader, const Node& node) {
  TRY(reader.expect(node, Kind::list, "hidden", "a list of files such as [\"power1_cap\", \"gpu_metrics\"]"));
  std::string hidden = ",";
  for (const Node& entry : node.list) hidden += TRY(reader.text(entry, "a file")) + ",";
  if (hidden.size() >= sizeof Gpu::hidden) return reader.refuse(node, "the names of the files are too long");
  return hidden;
}

// What is odd about cards that are read from files. Each is of one vendor.
Result<> read_file_quirks(const Reader& reader, const Node& table, Gpu& gpu) {
  const auto of = [&](std::string_view key, Vendor vendor) -> Result<const Node*> {
    const Node* node = table.find(key);
    if (node != nullptr && gpu.vendor != vendor)
      return reader.refuse(*node, fmt::format("{} is of {} GPUs; {} is none", key,
                                              kVendorNames[static_cast<std::size_t>(vendor)], gpu.name));
    return node;
  };
  const auto quirk = [&](std::string_view key, Vendor vendor, std::uint32_t bit) -> Result<> {
    const Node* node = TRY(of(key, vendor));
    if (node != nullptr) gpu.quirks = TRY(reader.truth(*node, key)) ? gpu.quirks | bit : gpu.quirks & ~bit;
    return {};
  };
  TRY(quirk("phantom_busy", Vendor::amd, kPhantomBusy));
  TRY(quirk("xcp_cards", Vendor::amd, kXcpCards));
  TRY(quirk("residency_stands", Vendor::intel, kResidencyStands));
  TRY(quirk("nvml_zeros", Vendor::tegra, kNvmlZeros));
  if (const Node* node = TRY(of("partition", Vendor::amd))) {
    const std::string mode = TRY(reader.text(*node, "partition"));
    if ((gpu.quirks & kManyDies) == 0) return reader.refuse(*node, fmt::format("{} has no partitions", gpu.name));
    if (mode != "SPX" && mode != "CPX") return reader.refuse(*node, "partition is \"SPX\" or \"CPX\"");
    gpu.quirks = mode == "CPX" ? gpu.quirks | kSplit | kXcpCards : gpu.quirks & ~kSplit;
  }
  if (const Node* node = TRY(of("idle_util", Vendor::amd)))
    gpu.idle_util = static_cast<std::uint32_t>(TRY(reader.number(*node, "idle_util", 0, 100)));
  if (const Node* node = TRY(of("kernel_driver", Vendor::intel))) {
    const std::string name = TRY(reader.text(*node, "kernel_driver"));
    if (name != "i915" && name != "xe") return reader.refuse(*node, "kernel_driver is \"i915\" or \"xe\"");
    gpu.quirks = name == "xe" ? gpu.quirks | kXe : gpu.quirks & ~kXe;
  }
  const Node* wrap = table.find("wrap_in");
  const Node* hidden = table.find("hidden");
  for (const Node* node : {wrap, hidden})
    if (node != nullptr && gpu.vendor == Vendor::nvidia)
      return reader.refuse(*node, fmt::format("{} is not read from files", gpu.name));
  if (wrap != nullptr) gpu.wrap_in_ns = TRY(reader.duration(*wrap, "wrap_in")).count();
  if (hidden != nullptr) copy_text(gpu.hidden, TRY(read_hidden(reader, *hidden)));
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
  TRY(read_quirks(reader, table, spec));
  TRY(read_file_quirks(reader, table, gpu));
  if (const Node* node = table.find("numa"))
    spec.numa = static_cast<std::uint32_t>(TRY(reader.number(*node, "numa", 0, 63)));
  if (const Node* node = table.find("uuid")) spec.uuid = TRY(reader.uuid(*node, gpu.vendor));
  if (const Node* node = table.find("pci")) spec.pci = TRY(reader.pci(*node));
  return {};
}

}  // namespace

Result<std::uint32_t> read_process_view(const Reader& reader, const Node& node) {
  const std::string view = TRY(reader.text(node, "process_view"));
  if (view == "all") return kViewAll;
  if (view == "own_namespace") return kViewOwnNamespace;
  if (view == "host") return kViewHost;
  return reader.refuse(node, "process_view is \"all\", \"own_namespace\" or \"host\"");
}

Result<> read_gpu(const Reader& reader, const Node& table, const GpuSpec& every, Scenario& scenario) {
  const auto names = with_value_names({"model",         "count",
                                       "name",          "memory",
                                       "fans",          "numa",
                                       "uuid",          "pci",
                                       "idle_power",    "context_power",
                                       "max_clock",     "pcie_generation",
                                       "pcie_width",    "energy_counter",
                                       "sample_buffer", "timeline",
                                       "repeat",        "mig",
                                       "trace",         "trace_gpu",
                                       "sample_dry",    "memory_total_zero",
                                       "asleep",        "unified_memory",
                                       "display",       "attach",
                                       "scrub",         "module_power",
                                       "reserved",      "process_view",
                                       "phantom_busy",  "xcp_cards",
                                       "idle_util",     "kernel_driver",
                                       "wrap_in",       "hidden",
                                       "nvml_zeros",    "residency_stands",
                                       "partition"});
  TRY(reader.known(table, "[[gpu]]", names));
  const Node* model = table.find("model");
  if (model == nullptr) return reader.refuse(table, "a GPU needs a model, such as model = \"H100\"");
  const auto card = sim::model(TRY(reader.text(*model, "model")));
  if (!card) return reader.refuse(*model, unknown_model(model->text));
  GpuSpec gpu;
  gpu.gpu = *card;
  gpu.gpu.quirks |= every.gpu.quirks;
  gpu.gpu.process_view = every.gpu.process_view;
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
  if (scenario.gpus.size() > kMaxGpus) return reader.refuse(table, fmt::format("more than {} GPUs", kMaxGpus));
  return {};
}

}  // namespace lull::sim
