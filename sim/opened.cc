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

Result<> serve_dstate_faults() {
  const std::string folder = TRY(simulation_folder());
  const auto owner = to_pid(trim(TRY(read_file(folder + "/owner"))));
  if (!owner) return fail(fmt::format("{}/owner does not say who runs the simulation", printable(folder)));
  return serve_dstate(folder, *owner);
}

Result<std::vector<std::size_t>> resolve_gpus(std::string_view text, const State& state) {
  std::vector<std::size_t> gpus;
  for (const std::string_view part : split(text, ',')) {
    const auto some = part.starts_with("GPU-") ? std::vector<std::size_t>{TRY(by_uuid(trim(part), state))}
                                               : TRY(parse_gpu_list(part, state.gpu_count));
    gpus.insert(gpus.end(), some.begin(), some.end());
  }
  std::sort(gpus.begin(), gpus.end());
  gpus.erase(std::unique(gpus.begin(), gpus.end()), gpus.end());
  return gpus;
}

}  // namespace lull::sim
