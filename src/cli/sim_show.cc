// `lull sim show` and `lull sim models`: what is simulated, as the simulation
// itself knows it (a client's view, through NVML, is `lull status`).

#include <fmt/format.h>

#include "base/units.h"
#include "cli/options.h"
#include "cli/sim.h"
#include "sim/models.h"
#include "sim/opened.h"
#include "sim/show.h"

namespace lull {
namespace {

constexpr const char* kShowAbout =
    "Shows the simulated GPUs as they are now: values (* was set by hand), faults in force, processes.\n";
constexpr const char* kModelsAbout =
    "Lists the GPU models that can be simulated, by the names that --gpus and scenarios take.\n";

}  // namespace

int sim_show(int argc, char** argv) {
  constexpr std::string_view kName = "sim show";
  bool json = false;
  CommandLine line(kShowAbout, "lull sim show");
  line.flag("--json", json, "as JSON, for programs");
  line.footer("Example:\n  lull sim show --json\n");
  if (const auto status = line.parse(argc, argv)) return *status;
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto text = json ? sim::show_json(*writer) : sim::show_text(*writer);
  if (!text) return cannot(kName, text.error());
  fmt::print("{}", *text);
  return 0;
}

int sim_models(int argc, char** argv) {
  CommandLine line(kModelsAbout, "lull sim models");
  line.usage("");
  line.footer("Example:\n  lull sim models\n");
  if (const auto status = line.parse(argc, argv)) return *status;
  for (const std::string_view name : sim::model_names()) {
    const auto gpu = sim::model(name);
    fmt::print("{:<11} {:<28} {:>10}  {:>3.0f} W idle, {:>3.0f} W with a context, {:>4.0f} W at most{}{}\n", name,
               gpu->name, format_size(static_cast<double>(gpu->memory_total)), gpu->power_idle, gpu->power_context,
               gpu->power_limit, gpu->fans == 0 ? ", no fan" : "", gpu->mig_capable != 0 ? ", MIG" : "");
  }
  return 0;
}

}  // namespace lull
