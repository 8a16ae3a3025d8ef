#include "sim/opened.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "sim/dstate.h"
#include "sim/files.h"
#include "sim/scenario.h"

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

}  // namespace lull::sim
