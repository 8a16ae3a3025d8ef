#pragma once
// What `lull pick` and the drop-in gpuselect share: the picker's world with a voice and a terminal, and how we become
// the command that runs on what was picked.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/exit_status.h"
#include "lease/picker.h"
#include "session/sample_source.h"
#include "view/picked.h"

namespace lull {

struct PickOutput {
  bool uuid = false;  // GPUs are named by UUID
  PickFormat format = PickFormat::ids;
  bool quiet = false;
};
using TellPicker = std::function<void(const std::string&)>;  // one line for whoever picks

// The sensor, the terminal: the world that a picker at the command line sees.
std::unique_ptr<PickWorld> pick_world(Senses& senses, bool quiet, TellPicker tell);

// Nothing: `name` can be run. Else why not (126, 127).
std::optional<SessionEnd> cannot_run(const std::string& name);

// Becomes the command. Returns only if that fails.
SessionEnd run_picked(Picker& picker, const Picked& picked, const PickOutput& output, const TellPicker& tell);

}  // namespace lull
