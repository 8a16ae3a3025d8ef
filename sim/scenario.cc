#include "sim/scenario.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <iterator>
#include <numeric>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "nvml/abi.h"
#include "sim/evaluate.h"
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
        return reader.refuse(entry, fmt::format("more than {} phases", kMaxSteps - 1));
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

constexpr std::string_view kDefaultModel = "A100";

constexpr const char* kFunctions[] = {
#define X(name) #name,
#include "sim/library/names.inc"
#undef X
};

struct FaultRow {
  FaultName name;
  std::string_view word;
  nvml::Return code;
  FaultKind kind = FaultKind::result;
  int error = 0;  // of files
};
constexpr std::array kFaults = {
    FaultRow{FaultName::lost, "lost", nvml::Return::gpu_is_lost},
    FaultRow{FaultName::reset, "reset", nvml::Return::reset_required},
    FaultRow{FaultName::unknown, "unknown", nvml::Return::unknown},
    FaultRow{FaultName::no_util, "no-util", nvml::Return::not_supported, FaultKind::no_util},
    FaultRow{FaultName::hang, "hang", nvml::Return::success},
    FaultRow{FaultName::unsupported, "unsupported", nvml::Return::not_supported},
    FaultRow{FaultName::no_permission, "no-permission", nvml::Return::no_permission},
    FaultRow{FaultName::no_driver, "no-driver", nvml::Return::driver_not_loaded},
    FaultRow{FaultName::mismatch, "mismatch", nvml::Return::lib_rm_version_mismatch},
    FaultRow{FaultName::dstate, "dstate", nvml::Return::success, FaultKind::dstate},
    FaultRow{FaultName::garbage, "garbage", nvml::Return::success, FaultKind::garbage},
    FaultRow{FaultName::ebusy, "ebusy", nvml::Return::success, FaultKind::file, EBUSY},
    FaultRow{FaultName::eperm, "eperm", nvml::Return::success, FaultKind::file, EPERM},
    FaultRow{FaultName::einval, "einval", nvml::Return::success, FaultKind::file, EINVAL},
    FaultRow{FaultName::enoent, "enoent", nvml::Return::success, FaultKind::file, ENOENT},
    FaultRow{FaultName::empty, "empty", nvml::Return::success, FaultKind::file, 0},
};

const FaultRow& row_of(FaultName name) { return kFaults[static_cast<std::size_t>(name)]; }

Result<std::size_t> parse_index(std::string_view text, std::size_t count) {
  const auto index = to_unsigned(text);
  if (!index)
    return fail(
        fmt::format("'{}' is not a GPU: use a number such as 0, a list such as 0,2 or 1-3, or all", printable(text)));
  if (*index >= count) {
    const std::string there = count == 1 ? "0 is the only one" : fmt::format("0 to {} are", count - 1);
    return fail(fmt::format("there is no GPU {}: {}", *index, there));
  }
  return static_cast<std::size_t>(*index);
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

// ---- parts

// The small languages inside a scenario and on the command line: "2xH100,1xT4",
// "0,2-3", "hang=8s", "3g.40gb".
std::string unknown_model(std::string_view text) {
  const auto names = model_names();
  const std::string hint = did_you_mean(text, names);
  return fmt::format("there is no model '{}'{}", printable(text),
                     hint.empty() ? fmt::format(": {} are", fmt::join(names, ", ")) : hint);
}

Result<std::vector<GpuSpec>> parse_gpus(std::string_view text) {
  std::vector<GpuSpec> gpus;
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    std::uint64_t count = 1;
    std::string_view model = part;
    if (const auto plain = to_unsigned(part); plain && !sim::model(part)) {
      count = *plain;
      model = kDefaultModel;
    } else if (const auto times = part.find_first_of("x*"); times != std::string_view::npos && times > 0) {
      if (const auto number = to_unsigned(trim(part.substr(0, times)))) {
        count = *number;
        model = trim(part.substr(times + 1));
      }
    }
    GpuSpec gpu;
    const auto card = sim::model(model);
    if (!card) {
      if (model.empty()) return fail(fmt::format("'{}' names no GPUs: 4 or 2xH100,1xT4 would", printable(text)));
      return fail(unknown_model(model));
    }
    if (count == 0 || gpus.size() + count > kMaxGpus)
      return fail(fmt::format("{} GPUs: 1 to {} can be simulated", gpus.size() + count, kMaxGpus));
    gpu.gpu = *card;
    gpus.insert(gpus.end(), count, gpu);
  }
  order_by_vendor(gpus);
  return gpus;
}

void order_by_vendor(std::vector<GpuSpec>& gpus) {
  std::ranges::stable_sort(
      gpus, {}, [](const GpuSpec& spec) { return in_nvml(spec.gpu.vendor) ? Vendor::nvidia : spec.gpu.vendor; });
}

std::vector<Vendor> vendors_of(const std::vector<GpuSpec>& gpus) {
  std::vector<Vendor> vendors;
  for (const GpuSpec& spec : gpus) vendors.push_back(spec.gpu.vendor);
  return vendors;
}

Result<std::vector<std::size_t>> parse_gpu_list(std::string_view text, std::size_t count) {
  std::vector<std::size_t> list;
  if (trim(text) == "all") {
    list.resize(count);
    std::iota(list.begin(), list.end(), std::size_t{0});
    return list;
  }
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    const auto dash = part.find('-', 1);
    const std::size_t first = TRY(parse_index(trim(part.substr(0, dash)), count));
    const std::size_t last =
        dash == std::string_view::npos ? first : TRY(parse_index(trim(part.substr(dash + 1)), count));
    if (last < first) return fail(fmt::format("'{}' goes backwards: {}-{} would be right", part, last, first));
    for (std::size_t i = first; i <= last; ++i)
      if (std::find(list.begin(), list.end(), i) == list.end()) list.push_back(i);
  }
  std::sort(list.begin(), list.end());
  return list;
}

Result<std::vector<std::size_t>> parse_gpu_list(std::string_view text, const std::vector<Vendor>& vendors) {
  std::vector<std::size_t> list;
  for (std::string_view part : split(text, ',')) {
    part = trim(part);
    const std::string_view word = part.substr(0, part.find(':'));
    const auto* const vendor = std::ranges::find(kVendorNames, word);
    std::vector<std::size_t> all;  // what it counts in
    for (std::size_t i = 0; i < vendors.size(); ++i)
      if (vendor == std::end(kVendorNames) || kVendorNames[static_cast<std::size_t>(vendors[i])] == word)
        all.push_back(i);
    if (vendor == std::end(kVendorNames)) {
      const auto some = TRY(parse_gpu_list(part, vendors.size()));
      list.insert(list.end(), some.begin(), some.end());
      continue;
    }
    if (all.empty()) return fail(fmt::format("there is no GPU of {} here", word));
    const std::string_view rest = part.size() > word.size() ? part.substr(word.size() + 1) : "all";
    auto some = parse_gpu_list(rest, all.size());
    if (!some) return std::unexpected(std::move(some).error().during(std::string(word)));
    for (const std::size_t i : *some) list.push_back(all[i]);
  }
  std::sort(list.begin(), list.end());
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

Result<NamedFault> parse_fault(std::string_view text) {
  const auto equals = text.find('=');
  const std::string_view word = trim(text.substr(0, equals));
  std::vector<std::string_view> words;
  for (const FaultRow& row : kFaults) {
    words.push_back(row.word);
    if (row.word != word) continue;
    NamedFault fault{row.name, {}};
    if (row.name == FaultName::hang) {
      if (equals == std::string_view::npos) return fail("hang needs how long a call takes: hang=8s would be right");
      if (trim(text.substr(equals + 1)) == "dstate") return NamedFault{FaultName::dstate, {}};
      fault.hang = TRY(parse_duration(text.substr(equals + 1)));
      if (fault.hang == Duration::zero()) return fail("hang=0 does not hang: hang=8s would be right");
    } else if (equals != std::string_view::npos) {
      return fail(fmt::format("{} takes no value; only hang does: hang=8s", word));
    }
    return fault;
  }
  const std::string hint = did_you_mean(word, words);
  return fail(fmt::format("there is no fault '{}'{}", printable(word),
                          hint.empty() ? fmt::format(": {} are", fmt::join(words, ", ")) : hint));
}

std::string_view fault_name(FaultName name) { return row_of(name).word; }
bool of_whole_driver(FaultName name) { return name == FaultName::no_driver || name == FaultName::mismatch; }

bool of_files(FaultName name) { return row_of(name).kind == FaultKind::file; }

std::vector<Fault> state_faults(const FaultSpec& spec, std::int64_t from_ns, std::int64_t to_ns) {
  Fault fault;
  fault.kind = row_of(spec.name).kind;
  fault.code = static_cast<std::int32_t>(row_of(spec.name).code);
  if (fault.kind == FaultKind::file) fault.code = row_of(spec.name).error;
  fault.hang_ns = spec.hang.count();
  fault.from_ns = from_ns;
  fault.to_ns = to_ns;
  copy_text(fault.function, spec.function);
  if (of_whole_driver(spec.name)) {
    fault.gpu = kWholeDriver;
    return {fault};
  }
  if (spec.gpus.empty()) return {fault};  // kEveryGpu
  std::vector<Fault> faults;
  for (const std::size_t gpu : spec.gpus) {
    fault.gpu = static_cast<std::int32_t>(gpu);
    faults.push_back(fault);
  }
  return faults;
}

// "3g.40gb": 3 of 7 compute slices, and memory as that card cuts it in eighths.
Result<> check_mig(std::string_view profile, const Gpu& gpu) {
  constexpr std::array<std::uint32_t, 8> kEighths = {0, 1, 2, 4, 4, 0, 0, 8};  // of the memory, of Ng
  const auto gigabytes = static_cast<std::uint32_t>((gpu.memory_total + (1U << 30) - 1) >> 30);
  std::vector<std::string> names;
  for (const std::uint32_t slices : {1U, 2U, 3U, 4U, 7U}) {
    names.push_back(fmt::format("{}g.{}gb", slices, std::max(1U, (gigabytes * kEighths[slices] + 4) / 8)));
    if (names.back() == profile) return {};
  }
  return fail(fmt::format("'{}' is not a MIG profile of {}; there are {}", printable(profile), gpu.name,
                          fmt::join(names, ", ")));
}

Result<> parse_costs(std::string_view text, std::array<Duration, kCosts>& costs) {
  for (const std::string_view part : split(text, ',')) {
    const auto equals = part.find('=');
    const std::string_view name = trim(part.substr(0, equals));
    const auto* const found = std::find(std::begin(kCostNames), std::end(kCostNames), name);
    if (found == std::end(kCostNames) || equals == std::string_view::npos) {
      const std::string hint = did_you_mean(name, kCostNames);
      return fail(fmt::format(
          "'{}' is not a cost{}", printable(trim(part)),
          hint.empty() ? fmt::format(": lists=4.5ms would be right; {} have one", fmt::join(kCostNames, ", ")) : hint));
    }
    const Duration cost = TRY(parse_duration(trim(part.substr(equals + 1))));
    if (cost > std::chrono::seconds(10)) return fail(fmt::format("{} is too much for one call", part));
    costs[static_cast<std::size_t>(found - std::begin(kCostNames))] = cost;
  }
  return {};
}

Result<std::string> parse_file_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_";
  const std::string_view name = text.substr(0, text.size() - (text.ends_with('*') ? 1 : 0));
  if (name.empty() || name.find_first_not_of(kLetters) != std::string_view::npos ||
      text.size() >= sizeof Fault::function)
    return fail(fmt::format("'{}' is not a file of a GPU: use one such as gpu_busy_percent", printable(text)));
  return std::string(text);
}

Result<std::string> parse_function(std::string_view text) {
  constexpr std::string_view kPrefix = "nvml";
  std::string name = text.starts_with(kPrefix) ? std::string(text) : std::string(kPrefix) + std::string(text);
  const std::string_view letters = std::string_view(name).substr(0, name.size() - (name.ends_with('*') ? 1 : 0));
  const bool word = std::all_of(letters.begin(), letters.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
  if (!word || letters.size() <= kPrefix.size() || name.size() >= sizeof Fault::function)
    return fail(
        fmt::format("'{}' is not an NVML function: use one such as nvmlDeviceGetUtilizationRates", printable(text)));
  if (std::none_of(std::begin(kFunctions), std::end(kFunctions),
                   [&](const char* one) { return names(name.c_str(), one); })) {
    const std::vector<std::string_view> known(std::begin(kFunctions), std::end(kFunctions));
    const std::string hint = did_you_mean(letters, known);
    return fail(fmt::format("no NVML function is called '{}'{}", printable(name),
                            hint.empty() ? ": one such as nvmlDeviceGetUtilizationRates is" : hint));
  }
  return name;
}

}  // namespace lull::sim
