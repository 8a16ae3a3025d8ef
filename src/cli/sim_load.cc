// `lull sim load`: a process that holds simulated GPUs as a CUDA program would.

#include <fmt/format.h>

#include <cstdlib>
#include <string>

#include "cli/sim.h"
#include "sim/load_words.h"
#include "sim/opened.h"

namespace lull {
namespace {

constexpr std::string_view kName = "sim load";

constexpr std::string_view kHelp =
    "usage: lull sim load [--gpu LIST] [--util PERCENT] [--mem SIZE] [--for TIME] [--then NAME=VALUE… --for TIME]…\n\n"
    "Holds simulated GPUs as a CUDA program would, until its phases end or it is killed.\n\n"
    "  --gpu LIST      0, 0,2, 1-3, all, a UUID, or 0:1 for MIG device 1 of GPU 0 "
    "(default: those of CUDA_VISIBLE_DEVICES, else 0)\n"
    "  --util PERCENT  how busy it keeps each GPU (default 90)\n"
    "  --mem SIZE      memory it uses on each (default 512MiB)\n"
    "  --for TIME      how long this phase lasts on the simulation's clock (default: for ever)\n"
    "  --then …        begins another phase: util=0, mem=2GiB or both\n"
    "  --graphics      it draws: listed as G instead of C; --both for C+G, --mps for M+C\n"
    "  --mps-server    it is the server of MPS: listed as C, and idle\n"
    "  --as TEXT       the command line that ps and nvidia-smi show for it (default: its own)\n\n"
    "Example:\n  lull sim load --gpu 0 --util 90 --mem 8GiB --for 30s --then util=0 --for 1m\n";

// As a CUDA program: what CUDA_VISIBLE_DEVICES says, else the first GPU.
std::string default_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != '\0' ? visible : "0";
}

}  // namespace

int sim_load(int argc, char** argv) {
  sim::Args args(argc, argv);
  if (args.flag("--help", "-h")) return show_help(kHelp);
  auto options = sim::parse_load(args);
  if (!options) return refuse(kName, options.error());
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto targets = sim::find_load_targets(options->gpus.empty() ? default_gpus() : options->gpus, writer->state());
  if (!targets) return refuse(kName, targets.error());
  if (const auto fits = sim::check_load_memory(options->load, *targets, writer->state()); !fits)
    return refuse(kName, fits.error());
  sim::show_as(options->title, argc, argv);
  if (const auto done = sim::hold_and_wait(options->load, *writer, *targets, *sim::simulation_folder()); !done)
    return cannot(kName, done.error());
  return 0;
}

}  // namespace lull
