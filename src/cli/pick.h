#pragma once
// What `lull pick` and the drop-in gpuselect share at the command line: the picker's world, with
// a voice, and the command that runs on what was picked.

#include <memory>
#include <optional>
#include <string>

#include "lease/picker.h"
#include "view/picked.h"

namespace lull {

struct PickOutput {
  bool uuid = false;  // GPUs are named by UUID
  PickFormat format = PickFormat::ids;
  bool quiet = false;
};

// The sensor, the terminal: the world that a picker at the command line sees.
std::unique_ptr<PickWorld> pick_world(bool quiet);

// Says on stderr why nothing was picked; returns the exit status.
int say_refusal(const Refusal& refusal);

// Nothing: `name` can be run. Else the exit status (126, 127), all has been said.
std::optional<int> cannot_run(const std::string& name);

// Becomes the command. Returns only if that fails, with the exit status.
int run_picked(Picker& picker, const Picked& picked, const PickOutput& output);

}  // namespace lull
