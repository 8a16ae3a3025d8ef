// `lull sim set`, `fault` and `clear`: change the simulated GPUs while they run.

#include <fmt/format.h>

#include <optional>
#include <span>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "cli/sim.h"
#include "sim/changes.h"
#include "sim/holders.h"
#include "sim/opened.h"
#include "sim/scenario.h"
#include "sim/values.h"

namespace lull {
namespace {

constexpr const char* kSetAbout =
    "Sets values of simulated GPUs, from now on. VALUE may have a unit; auto gives the value back to the scenario,\n"
    "none makes it unreadable.\n";

constexpr const char* kFaultAbout =
    "Makes NVML calls about a GPU, or reads of its files, fail from now on, until `lull sim clear` or for a time.\n";
constexpr const char* kFaultMore =
    "KIND is\n"
    "  lost           the GPU has fallen off the bus\n"
    "  reset          it needs a reset\n"
    "  unknown        an unknown error\n"
    "  unsupported    the call is not supported\n"
    "  no-util        no utilisation (as with MIG)\n"
    "  no-permission  the caller may not\n"
    "  hang=8s        the call, or the read of a file, takes 8 s of real time\n"
    "  hang=dstate    it sleeps in the kernel, and no signal ends it\n"
    "  garbage        the call answers nonsense\n"
    "  ebusy          files of an AMD, Intel or Jetson GPU cannot be read; also eperm, einval, enoent\n"
    "  empty          they have nothing in them\n"
    "and for all GPUs at once\n"
    "  no-driver      the driver is not loaded\n"
    "  mismatch       driver and library differ\n\n"
    "Examples:\n  lull sim fault 0 lost\n"
    "  lull sim fault 1 hang=8s --function nvmlDeviceGetUtilizationRates --for 30s\n"
    "  lull sim fault amd:0 ebusy --file gpu_busy_percent\n"
    "  lull sim fault all no-driver\n";

constexpr const char* kClearAbout =
    "Ends faults and takes back what was set, of one GPU or of all; the scenario goes on.\n";

std::string values_and_example() {
  std::string text = "NAME=VALUE is\n";
  const auto add = [&](const std::string& name, std::string_view meaning) {
    text += fmt::format("  {:<16} {}\n", name, meaning);
  };
  for (const auto& value : sim::value_table()) add(fmt::format("{}={}", value.name, value.example), value.meaning);
  add("pcie=4GiB", "both directions, half each");
  add("mig=off", "the same as mig_mode=0");
  add("asleep=on", "suspended, until a call or the read of a value touches it");
  return text + "\nExample:\n  lull sim set 0 util=35 power=180 mem_used=8GiB temp=60\n";
}

}  // namespace

int sim_set(int argc, char** argv) {
  constexpr std::string_view kName = "sim set";
  std::vector<std::string> words;
  CommandLine line(kSetAbout, "lull sim set");
  line.usage("GPU NAME=VALUE…");
  line.arguments("GPU", words, kGpuWords);
  line.footer(values_and_example());
  if (const auto status = line.parse(argc, argv)) return *status;
  if (words.empty())
    return complain("sim set: which GPU, and what? `lull sim set 0 util=35` would be right", kExitUsage);
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto gpus = sim::resolve_gpus(words[0], writer->state());
  if (!gpus) return refuse(kName, gpus.error());
  if (words.size() == 1) return complain("sim set: set what? `lull sim set 0 util=35` would be right", kExitUsage);
  std::vector<sim::Change> changes;
  std::optional<bool> asleep;
  for (const std::string& word : std::span(words).subspan(1)) {
    if (word.starts_with("asleep=")) {
      const auto wanted = sim::parse_switch(word);
      if (!wanted) return refuse(kName, wanted.error());
      asleep = *wanted;
      continue;
    }
    const auto some = sim::parse_change(word, *gpus, writer->state());
    if (!some) return refuse(kName, some.error());
    changes.insert(changes.end(), some->begin(), some->end());
  }
  if (!changes.empty())
    if (const auto done = writer->set(changes); !done) return cannot(kName, done.error());
  for (const std::size_t gpu : asleep ? *gpus : std::vector<std::size_t>())
    if (const auto done = writer->put_to_sleep(static_cast<unsigned>(gpu), *asleep); !done)
      return cannot(kName, done.error());
  return 0;
}

int sim_fault(int argc, char** argv) {
  constexpr std::string_view kName = "sim fault";
  std::vector<std::string> words;
  std::string function;
  std::string file;
  std::string lasting;
  CommandLine line(kFaultAbout, "lull sim fault");
  line.usage("GPU KIND [--function NAME | --file NAME] [--for TIME]");
  line.arguments("GPU", words, kGpuWords);
  auto only = line.option("--function", function,
                          "only this call, such as nvmlDeviceGetPowerUsage, or nvmlDeviceGet* for all that begin so "
                          "(default: all calls)")
                  .value("NAME");
  auto only_file = line.option("--file", file,
                               "only this file of an AMD, Intel or Jetson GPU, such as gpu_busy_percent, or power1_* "
                               "(default: all files)")
                       .value("NAME")
                       .excludes("--function");
  line.option(shared::kFor, lasting, "it lasts on the simulation's clock (default: until lull sim clear)");
  line.footer(kFaultMore);
  if (const auto status = line.parse(argc, argv)) return *status;
  sim::FaultSpec fault;
  if (only.given()) {
    const auto name = sim::parse_function(function);
    if (!name) return refuse(kName, name.error());
    fault.function = *name;
  }
  if (only_file.given()) {
    const auto name = sim::parse_file_name(file);
    if (!name) return refuse(kName, name.error());
    fault.function = *name;
  }
  if (!lasting.empty()) {
    const auto time = limit_option("--for", lasting);
    if (!time) return refuse(kName, time.error());
    fault.lasting = *time;
  }
  if (words.size() != 2)
    return complain("sim fault: a GPU and a kind are needed: `lull sim fault 0 lost` would be right", kExitUsage);
  const auto named = sim::parse_fault(words[1]);
  if (!named) return refuse(kName, named.error());
  fault.name = named->name;
  fault.hang = named->hang;
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  if (sim::of_whole_driver(fault.name) && words[0] != "all")
    return complain(
        fmt::format("sim fault: {0} is of the whole driver: `lull sim fault all {0}` would be right", words[1]),
        kExitUsage);
  if (!sim::of_whole_driver(fault.name)) {  // of each GPU by itself, so that each can be cleared by itself
    const auto gpus = sim::resolve_gpus(words[0], writer->state());
    if (!gpus) return refuse(kName, gpus.error());
    fault.gpus = *gpus;
  }
  if (const auto right = sim::check_file_fault(fault, only_file.given(), writer->state()); !right)
    return refuse(kName, right.error());
  if (const auto served = sim::serve_hangs(fault, writer->state()); !served) return cannot(kName, served.error());
  const std::int64_t now = writer->mapping().now_ns();
  const auto faults = sim::state_faults(fault, -1, fault.lasting ? now + fault.lasting->count() : sim::kForever);
  if (const auto done = writer->add_faults(faults); !done) return cannot(kName, done.error());
  return 0;
}

int sim_clear(int argc, char** argv) {
  constexpr std::string_view kName = "sim clear";
  std::vector<std::string> words;
  CommandLine line(kClearAbout, "lull sim clear");
  line.usage("[GPU]");
  line.arguments("GPU", words, fmt::format("{} (default all)", kGpuWords));
  line.footer("Example:\n  lull sim clear 0\n");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (words.size() > 1) return refuse(kName, one_too_many(words[1]));
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  if (words.empty() || words[0] == "all") {
    if (const auto done = writer->clear(); !done) return cannot(kName, done.error());
    for (unsigned gpu = 0; gpu < writer->state().gpu_count; ++gpu) (void)writer->put_to_sleep(gpu, false);
    return 0;
  }
  const auto gpus = sim::resolve_gpus(words[0], writer->state());
  if (!gpus) return refuse(kName, gpus.error());
  if (const auto done = sim::take_back(*writer, *gpus); !done) return cannot(kName, done.error());
  return 0;
}

// `lull sim reset`: what `nvidia-smi --gpu-reset` does, to simulated GPUs.

namespace {

constexpr int kHeld = 1;  // exit status

constexpr const char* kSimResetAbout =
    "Resets a simulated GPU as `nvidia-smi --gpu-reset` does: only while no process holds it, be it through the\n"
    "library, as a load, or by an open device file. The fault `reset` is over then. If a process holds it, the exit\n"
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
  CommandLine line(kSimResetAbout, "lull sim reset");
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
