#pragma once
// The phases of `lull sim load`, each as it was written, and what a load plays of them; and the command line that it
// shows.

#include <array>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/load.h"

namespace lull::sim {

// One phase as it was written; empty: not said.
struct PhaseOptions {
  std::string util;
  std::string memory;
  std::array<std::string, kCounters> counters;
  std::string lasting;
  std::vector<std::string> changes;  // util=0, mem=2GiB: after --then
};
// The first is of the command line itself, each other of a --then.
Result<> add_phase(const PhaseOptions& words, LoadSpec& load);
// A server of MPS, where nothing else was said.
void be_mps_server(LoadSpec& load);

// Shows `title` as our command line: ps and nvidia-smi read it from our own memory. `argv` is main's, or its end.
void show_as(const std::string& title, int argc, char** argv);

}  // namespace lull::sim
