// `lull sim reset`: what `nvidia-smi --gpu-reset` does, to simulated GPUs.

#include <fmt/format.h>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/sim.h"
#include "sim/holders.h"
#include "sim/opened.h"

namespace lull {
namespace {

constexpr int kHeld = 1;  // exit status

constexpr const char* kAbout =
    "Resets a simulated GPU as `nvidia-smi --gpu-reset` does: only while no process holds it, be it through the\n"
    "library, as a load, or by an open device file. The fault `reset` is over then. If somebody holds it, the exit\n"
    "status is 1 and the holders are named.\n";

std::string listed(const std::vector<sim::Holder>& holders) {
  std::vector<std::string> each;
  for (const sim::Holder& holder : holders)
    each.push_back(holder.name.empty() ? fmt::format("{}", holder.pid)
                                       : fmt::format("{} ({})", holder.pid, printable(holder.name)));
  return fmt::format("{}", fmt::join(each, ", "));
}

}  // namespace

int sim_reset(int argc, char** argv) {
  constexpr std::string_view kName = "sim reset";
  std::vector<std::string> words;
  CommandLine line(kAbout, "lull sim reset");
  line.usage("GPU");
  line.arguments("GPU", words, kGpuWords);
  line.footer("Example:\n  lull sim reset 0\n");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (words.empty()) return complain("sim reset: which GPU? `lull sim reset 0` would be right", kExitUsage);
  if (words.size() > 1) return refuse(kName, one_too_many(words[1]));
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto gpus = sim::resolve_gpus(words[0], writer->state());
  if (!gpus) return refuse(kName, gpus.error());
  const std::string folder = *sim::simulation_folder();
  sim::Mapping mapping;
  if (mapping.open(folder.c_str()) != 0) return cannot(kName, Error{"the simulation has just ended"});
  for (const std::size_t gpu : *gpus)
    if (const auto holders = sim::holders_of(mapping, folder, static_cast<unsigned>(gpu)); !holders.empty())
      return complain(fmt::format("sim reset: GPU {} is in use by {}", gpu, listed(holders)), kHeld);
  for (const std::size_t gpu : *gpus)
    if (const auto done = writer->end_reset_required(static_cast<unsigned>(gpu)); !done)
      return cannot(kName, done.error());
  return 0;
}

}  // namespace lull
