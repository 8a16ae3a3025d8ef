#pragma once
// A process that holds simulated GPUs as a CUDA program would. It is in the process list, has the
// device files open, uses memory and keeps the GPU busy in phases; whatever ends it, it is gone
// from the list at once.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/scenario.h"
#include "sim/writer.h"

namespace lull::sim {

struct LoadSpec {
  std::vector<PhaseSpec> phases = std::vector<PhaseSpec>(1);
  std::uint32_t kind = kCompute;
  int ready_fd = -1;  // closed once the load is there
};

struct LoadTarget {
  std::size_t gpu = 0;
  std::uint32_t mig = kNone;
};
// "0", "0,2", "amd:0", "all", a UUID, or "0:1" for MIG device 1 of GPU 0.
Result<std::vector<LoadTarget>> find_load_targets(std::string_view text, const State& state);
// Those that the environment leaves to a program: as CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES (with
// HIP_VISIBLE_DEVICES) or ZE_AFFINITY_MASK say, else the first. In the words of find_load_targets().
std::string visible_gpus(const State& state);
Result<> check_load_memory(const LoadSpec& spec, const std::vector<LoadTarget>& targets, const State& state);

// Until its phases end, or the simulation does.
Result<> hold_and_wait(const LoadSpec& spec, Writer& writer, const std::vector<LoadTarget>& targets,
                       const std::string& folder);

// ---- the options of `lull sim load`

// One phase as it was written; empty: not said.
struct PhaseOptions {
  std::string util;
  std::string memory;
  std::array<std::string, kCounters> counters;
  std::string lasting;
  std::vector<std::string> changes;  // util=0, mem=2GiB: after --then
};
// The first is of the command line itself, each other of a --then.
Result<> add_phase(const PhaseOptions& options, LoadSpec& load);
// A server of MPS, where nothing else was said.
void be_mps_server(LoadSpec& load);

// Shows `title` as our command line: ps and nvidia-smi read it from our own memory. `argv` is main's, or its end.
void show_as(const std::string& title, int argc, char** argv);

}  // namespace lull::sim
