// `lull sim load`: a process that holds simulated GPUs as a CUDA program would, or ROCm's.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <vector>

#include "cli/options.h"
#include "cli/shared_options.h"
#include "cli/sim.h"
#include "sim/load_options.h"
#include "sim/opened.h"

namespace lull {
namespace {

constexpr std::string_view kName = "sim load";

constexpr const char* kSimLoadAbout =
    "Holds simulated GPUs as a CUDA, ROCm or SYCL program would, until its phases end or it is killed.\n";
constexpr const char* kSimLoadMore =
    "Phases:\n"
    "  --then NAME=VALUE… --for TIME  another phase when the one before it is over: util=0, mem=2GiB, sm=5 …\n\n"
    "Example:\n  lull sim load --gpu 0 --util 90 --mem 8GiB --for 30s --then util=0 --for 1m\n";

struct LoadOptions {
  std::string gpus;
  std::string title;  // the command line that it shows
  bool graphics = false;
  bool both = false;
  bool mps = false;
  bool mps_server = false;
  unsigned ready_fd = 0;
};

// Of one phase and of the load as a whole: `--then util=0 --for 1m --as python` may be said.
std::optional<int> read_phase(std::span<char* const> arguments, LoadOptions& load, sim::PhaseOptions& phase) {
  CommandLine line(kSimLoadAbout, "lull sim load");
  line.usage("[--gpu LIST] [--util PERCENT] [--mem SIZE] [--for TIME] [--then NAME=VALUE… --for TIME]…");
  line.option("--gpu,--gpus", load.gpus,
              "0, 0,2, 1-3, amd:0, all, a UUID, or 0:1 for MIG device 1 of GPU 0 (default: those that "
              "CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES or ZE_AFFINITY_MASK leaves, else 0)")
      .value("LIST");
  line.option("--util", phase.util, "how busy it keeps each GPU", "90").value("PERCENT").not_empty("90");
  line.option("--mem", phase.memory, "memory it uses on each", "512MiB").value("SIZE").not_empty("8GiB");
  constexpr std::array kMeanings = {
      "multiprocessors that it keeps busy, by the chip's counters (default: 0.8 of --util)",
      "tensor cores, likewise (default: 0.5 of --util)", "bandwidth of the memory, likewise (default: 0.4 of --util)"};
  for (unsigned i = 0; i < sim::kCounters; ++i)
    line.option(fmt::format("--{}", sim::counter_name(i)), phase.counters[i], kMeanings[i])
        .value("PERCENT")
        .not_empty("30");
  line.option(shared::kFor, phase.lasting, "this phase lasts on the simulation's clock (default: for ever)");
  line.flag("--graphics", load.graphics, "it draws: listed as G instead of C");
  line.flag("--both", load.both, "it computes and draws: C+G").excludes("--graphics");
  line.flag("--mps", load.mps, "it computes through the server of MPS: M+C").excludes("--graphics").excludes("--both");
  line.flag("--mps-server", load.mps_server, "it is the server of MPS: listed as C, and idle").excludes("--mps");
  line.option("--as", load.title, "the command line that ps and nvidia-smi show for it (default: its own)")
      .value("TEXT");
  line.option("--ready-fd", load.ready_fd, "closed once the load is there").hidden();
  line.arguments("CHANGES", phase.changes, "after --then").hidden();
  line.footer(kSimLoadMore);
  std::vector<char*> words(arguments.begin(), arguments.end());
  return line.parse(static_cast<int>(words.size()), words.data());
}

sim::LoadSpec as_kind(const LoadOptions& words, sim::LoadSpec load) {
  if (words.graphics) load.kind = sim::kGraphics;
  if (words.both) load.kind = sim::kCompute | sim::kGraphics;
  if (words.mps) load.kind = sim::kMps;
  if (words.mps_server) sim::be_mps_server(load);
  if (words.ready_fd > 0) load.ready_fd = static_cast<int>(words.ready_fd);
  return load;
}

}  // namespace

int sim_load(int argc, char** argv) {
  LoadOptions words;
  sim::LoadSpec load;
  load.phases.clear();
  // The order counts: what follows a --then is of the phase that it begins. So each phase is a command line of its own.
  const std::span<char* const> all(argv, static_cast<std::size_t>(argc));
  for (std::size_t begin = 0; begin < all.size();) {
    const auto rest = all.subspan(begin + 1);  // the word before it is our name, or --then
    const auto then = std::ranges::find(rest, std::string_view("--then"));
    const auto length = static_cast<std::size_t>(then - rest.begin());
    sim::PhaseOptions phase;
    if (const auto status = read_phase(all.subspan(begin, length + 1), words, phase)) return *status;
    if (const auto added = sim::add_phase(phase, load); !added) return refuse(kName, added.error());
    begin += length + 1;
  }
  load = as_kind(words, std::move(load));
  if (words.mps_server) words.title = sim::kMpsServerName;
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto targets =
      sim::find_load_targets(words.gpus.empty() ? sim::visible_gpus(writer->state()) : words.gpus, writer->state());
  if (!targets) return refuse(kName, targets.error());
  if (const auto fits = sim::check_load_memory(load, *targets, writer->state()); !fits)
    return refuse(kName, fits.error());
  sim::show_as(words.title, argc, argv);
  if (const auto done = sim::hold_and_wait(load, *writer, *targets, *sim::simulation_folder()); !done)
    return cannot(kName, done.error());
  return 0;
}

}  // namespace lull
