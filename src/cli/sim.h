#pragma once
// `lull sim` and its own commands, and what they share: finding the simulation
// that $LULL_SIM names and the GPUs that a person means.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/writer.h"

namespace lull {

int sim_set(int argc, char** argv);
int sim_load(int argc, char** argv);
int sim_fault(int argc, char** argv);
int sim_clear(int argc, char** argv);
int sim_reset(int argc, char** argv);
int sim_show(int argc, char** argv);
int sim_models(int argc, char** argv);

// $LULL_SIM, with clear words where it is not set or no longer there.
Result<std::string> simulation_folder();
Result<sim::Writer> open_simulation();

// Sees to it that calls can hang in D state in this simulation (sim/dstate.h).
Result<> serve_dstate_faults();

// "0", "0,2", "1-3", "all", "GPU-5c6a" (a unique beginning of a UUID).
Result<std::vector<std::size_t>> resolve_gpus(std::string_view text, const sim::State& state);

// What every command of ours does with an error: one line, and the status for it.
int refuse(std::string_view command, const Error& error);  // the command line was wrong: 2
int cannot(std::string_view command, const Error& error);  // it could not be done: 125

}  // namespace lull
