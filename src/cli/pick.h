#pragma once
// What `lull pick` and the drop-in gpuselect share at the command line: the picker's eyes and
// voice, what is said of a choice, and the command that runs on it.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "lease/picker.h"

namespace lull {

enum class PickFormat : std::uint8_t { ids, uuids, docker, env, json };

struct PickOutput {
  bool uuid = false;  // GPUs are named by UUID
  PickFormat format = PickFormat::ids;
  bool quiet = false;
};

// The sensor, the terminal: the world that a picker at the command line sees.
std::unique_ptr<PickWorld> pick_world(bool quiet);

// Sets what makes the command see these GPUs and no others: CUDA_VISIBLE_DEVICES
// and CUDA_DEVICE_ORDER, or what the maker of the GPUs uses instead.
std::vector<std::pair<std::string, std::string>> visibility(const Picked& picked, bool uuid, const Root& root);
// CUDA_VISIBLE_DEVICES: "0,3", or UUIDs where asked for or where there are MIG devices.
std::string visible_value(const Picked& picked, bool uuid);

// Says on stderr why nothing was picked; returns the exit status.
int say_refusal(const Refusal& refusal);

// What was read of each GPU in scope, and why it suits or not.
std::vector<std::string> debug_lines(const Picker& picker);

// Nothing: `name` can be run. Else the exit status (126, 127), all has been said.
std::optional<int> cannot_run(const std::string& name);

// Becomes the command. Returns only if that fails, with the exit status.
int run_picked(Picker& picker, const Picked& picked, const PickOutput& output);

}  // namespace lull
