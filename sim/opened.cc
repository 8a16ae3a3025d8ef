#include "sim/opened.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "sim/dstate.h"
#include "sim/evaluate.h"
#include "sim/files.h"
#include "sim/folder.h"
#include "sim/scenario.h"
#include "sim/values.h"

namespace lull::sim {
namespace {

Result<std::size_t> by_uuid(std::string_view text, const State& state) {
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < state.gpu_count; ++i) {
    if (!std::string_view(state.gpus[i].uuid).starts_with(text)) continue;
    if (found) return fail(fmt::format("'{}' begins the UUID of more than one GPU", printable(text)));
    found = i;
  }
  if (!found) return fail(fmt::format("no GPU has a UUID that begins with '{}'", printable(text)));
  return *found;
}

// Whether a card that is read from files shows it.
bool has_value(Metric metric) {
  using enum Metric;
  switch (metric) {
    case util:
    case mem_util:
    case mem_used:
    case power:
    case power_limit:
    case temp:
    case fan:
    case clock:
    case mem_clock: return true;
    default: return false;
  }
}

namespace fs = std::filesystem;

void add_clients(const State& state, unsigned gpu, std::set<std::uint32_t>& pids) {
  for (const Client& client : state.clients) {
    const std::uint32_t pid = client.pid.load(std::memory_order_acquire);
    if (pid == 0 || (client.gpus[gpu / 64].load(std::memory_order_acquire) >> gpu % 64 & 1) == 0) continue;
    if (process_start_ticks(pid) == client.start_ticks.load(std::memory_order_acquire)) pids.insert(pid);
  }
}

void add_loads(Mapping& mapping, unsigned gpu, std::set<std::uint32_t>& pids) {
  const std::int64_t now = mapping.now_ns();
  const auto found = mapping.read([&](const Live& live) {
    std::vector<std::uint32_t> some;
    const Scene scene{mapping.writable_state(), mapping.writable(), live, now};
    each_load(scene, gpu, now, [&](const Load& load) { some.push_back(host_pid_of(mapping.state(), load)); });
    return some;
  });
  pids.insert(found.begin(), found.end());
}

bool has_open(const fs::path& process, const fs::path& file) {
  std::error_code error;
  for (fs::directory_iterator it(process / "fd", error), end; !error && it != end; it.increment(error)) {
    std::error_code unreadable;
    if (fs::read_symlink(it->path(), unreadable) == file && !unreadable) return true;
  }
  return false;
}

// KFD is of all cards of AMD: who has it open need not hold this one.
std::string own_device_file(const std::string& folder, const State& state, unsigned gpu) {
  const Gpu& card = state.gpus[gpu];
  return has_render_node(card.vendor) ? device_files(folder, card).back() : device_file(folder, gpu);
}

void add_openers(const std::string& folder, const State& state, unsigned gpu, std::set<std::uint32_t>& pids) {
  std::error_code error;
  const fs::path file = fs::canonical(own_device_file(folder, state, gpu), error);
  if (error) return;
  for (fs::directory_iterator it("/proc", error), end; !error && it != end; it.increment(error)) {
    const auto pid = to_unsigned(it->path().filename().string());
    if (pid && has_open(it->path(), file)) pids.insert(static_cast<std::uint32_t>(*pid));
  }
}

}  // namespace

Result<std::string> simulation_folder() {
  const char* folder = std::getenv("LULL_SIM");
  if (folder == nullptr || *folder == '\0')
    return fail("LULL_SIM is not set: this works inside `lull sim --gpus 4`, or with LULL_SIM set to its folder");
  return folder;
}

Result<Writer> open_simulation() {
  const std::string folder = TRY(simulation_folder());
  const std::string shown = printable(folder);
  switch (Mapping().open(folder.c_str())) {
    case ENOENT:
    case ENOTDIR:
      return fail(fmt::format("LULL_SIM={}: there is no simulation (any more); start one with `lull sim`", shown));
    case EPROTO:
      return fail(fmt::format("LULL_SIM={}: the state there is none of this lull's; was it started by another version?",
                              shown));
    default: return Writer::open(folder);
  }
}

Result<> check_file_fault(const FaultSpec& fault, bool of_file, const State& state) {
  if (!of_file && !of_files(fault.name)) return {};
  const auto entries = file_entries(state);
  for (const std::size_t gpu : fault.gpus) {
    const Gpu& card = state.gpus[gpu];
    if (card.vendor == Vendor::nvidia)
      return fail(fmt::format("GPU {} ({}) is not read from files: only calls about it fail", gpu, card.name));
    const bool found = std::ranges::any_of(entries, [&](const FileEntry& entry) {
      return entry.gpu == gpu && entry.render != nullptr &&
             names(fault.function.c_str(), entry.path.c_str() + entry.path.rfind('/') + 1);
    });
    if (!found && !fault.function.starts_with("vram_"))
      return fail(fmt::format("GPU {} ({}) has no file '{}' that says how it is", gpu, card.name, fault.function));
  }
  return {};
}

namespace {

Result<> serve_dstate_here() {
  const std::string folder = TRY(simulation_folder());
  const auto owner = to_pid(trim(TRY(read_file(folder + "/owner"))));
  if (!owner) return fail(fmt::format("{}/owner does not say who runs the simulation", printable(folder)));
  return serve_dstate(folder, *owner);
}

}  // namespace

Result<> serve_hangs(const FaultSpec& fault, const State& state) {
  if (fault.name != FaultName::dstate && fault.hang == Duration::zero()) return {};
  const auto in_files = [&](std::size_t gpu) { return state.gpus[gpu].vendor != Vendor::nvidia; };
  if (std::ranges::any_of(fault.gpus, in_files) && state.files_live.load(std::memory_order_acquire) == 0)
    return fail("a file that hangs needs FUSE: /dev/fuse and the right to mount");
  if (fault.name != FaultName::dstate || std::ranges::all_of(fault.gpus, in_files)) return {};
  return serve_dstate_here();
}

Result<std::vector<std::size_t>> resolve_gpus(std::string_view text, const State& state) {
  std::vector<std::size_t> gpus;
  std::vector<Vendor> vendors;
  for (std::size_t i = 0; i < state.gpu_count; ++i) vendors.push_back(state.gpus[i].vendor);
  for (const std::string_view part : split(text, ',')) {
    const auto some = part.starts_with("GPU-") ? std::vector<std::size_t>{TRY(by_uuid(trim(part), state))}
                                               : TRY(parse_gpu_list(part, vendors));
    gpus.insert(gpus.end(), some.begin(), some.end());
  }
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  return gpus;
}

// ---- changes

Result<std::vector<Change>> parse_change(std::string_view word, const std::vector<std::size_t>& gpus,
                                         const State& state) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos)
    return fail(fmt::format("'{}' is not NAME=VALUE: util=35 would be right", printable(word)));
  const std::string_view name = trim(word.substr(0, equals));
  const bool both = name == "pcie";
  const ValueInfo* info = TRY(find_value(both ? "pcie_rx" : name == "mig" ? "mig_mode" : name));
  const double number = TRY(parse_value(*info, word.substr(equals + 1)));
  std::vector<Change> changes;
  for (const std::size_t index : gpus) {
    const Gpu& gpu = state.gpus[index];
    if (info->metric == Metric::fan && gpu.fans == 0 && std::isfinite(number))
      return fail(fmt::format("GPU {} ({}) has no fan", index, gpu.name));
    if (!in_nvml(gpu.vendor) && !has_value(info->metric))
      return fail(fmt::format("GPU {} ({}) does not show {}", index, gpu.name, info->name));
    if (info->metric == Metric::mig_mode && gpu.mig_capable == 0)
      return fail(fmt::format("GPU {} ({}) has no MIG", index, gpu.name));
    if (info->metric == Metric::mem_used && std::isfinite(number) && number > static_cast<double>(gpu.memory_total))
      return fail(fmt::format("mem_used={} is more than GPU {} has: {}", format_size(number), index,
                              format_size(static_cast<double>(gpu.memory_total))));
    changes.push_back({static_cast<unsigned>(index), info->metric, both ? number / 2 : number});
    if (both) changes.push_back({static_cast<unsigned>(index), Metric::pcie_tx, number / 2});
  }
  return changes;
}

Result<bool> parse_switch(std::string_view word) {
  const std::string_view value = word.substr(word.find('=') + 1);
  if (value == "on" || value == "1") return true;
  if (value == "off" || value == "0") return false;
  return fail(fmt::format("'{}' is not understood: on or off would be right", printable(word)));
}

Result<> take_back(Writer& writer, const std::vector<std::size_t>& gpus) {
  std::vector<Change> changes;
  for (const std::size_t gpu : gpus) {
    for (unsigned metric = 0; metric < kMetrics; ++metric)
      changes.push_back({static_cast<unsigned>(gpu), static_cast<Metric>(metric), kDerive});
    TRY(writer.clear_faults(static_cast<std::int32_t>(gpu)));
    (void)writer.put_to_sleep(static_cast<unsigned>(gpu), false);  // where it has such a file at all
  }
  return writer.set(changes);
}

// ---- who holds a GPU

std::vector<DeviceUser> device_users(Mapping& mapping, const std::string& folder, unsigned gpu) {
  std::set<std::uint32_t> pids;
  add_clients(mapping.state(), gpu, pids);
  add_loads(mapping, gpu, pids);
  add_openers(folder, mapping.state(), gpu, pids);
  std::vector<DeviceUser> holders;
  for (const std::uint32_t pid : pids) {
    const std::string name = read_file(fmt::format("/proc/{}/comm", pid)).value_or("");
    holders.push_back({pid, std::string(trim(name))});
  }
  return holders;
}

}  // namespace lull::sim
