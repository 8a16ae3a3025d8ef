// `lull sim`: runs a command among simulated GPUs, and changes them while they run.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "sim/load.h"
#include "sim/models.h"
#include "sim/opened.h"
#include "sim/scenario.h"
#include "sim/session.h"
#include "sim/show.h"
#include "sim/values.h"

namespace lull {
namespace {

constexpr const char* kGpuWords = "a number, a list (0,2 or 1-3), amd:0, a UUID, or all";

Error one_too_many(std::string_view word) { return {fmt::format("'{}' is one argument too many", printable(word)), 0}; }

// The command line was wrong.
int refuse(std::string_view command, const Error& error) {
  return complain(fmt::format("{}: {}", command, error.message()), kExitUsage);
}

// It could not be done.
int cannot(std::string_view command, const Error& error) {
  return complain(fmt::format("{}: {}", command, error.message()), kExitFailure);
}

// ---- lull sim load: a process that holds simulated GPUs as a CUDA program would, or ROCm's

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
  line.option(shared::kFor, phase.lasting, "this phase lasts on the simulation's clock (default: no end)");
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

sim::LoadSpec as_kind(const LoadOptions& options, sim::LoadSpec load) {
  if (options.graphics) load.kind = sim::kGraphics;
  if (options.both) load.kind = sim::kCompute | sim::kGraphics;
  if (options.mps) load.kind = sim::kMps;
  if (options.mps_server) sim::be_mps_server(load);
  if (options.ready_fd > 0) load.ready_fd = static_cast<int>(options.ready_fd);
  return load;
}

int sim_load(int argc, char** argv) {
  LoadOptions options;
  sim::LoadSpec load;
  load.phases.clear();
  // The order counts: what follows a --then is of the phase that it begins. So each phase is a command line of its own.
  const std::span<char* const> all(argv, static_cast<std::size_t>(argc));
  for (std::size_t begin = 0; begin < all.size();) {
    const auto rest = all.subspan(begin + 1);  // the word before it is our name, or --then
    const auto then = std::ranges::find(rest, std::string_view("--then"));
    const auto length = static_cast<std::size_t>(then - rest.begin());
    sim::PhaseOptions phase;
    if (const auto status = read_phase(all.subspan(begin, length + 1), options, phase)) return *status;
    if (const auto added = sim::add_phase(phase, load); !added) return refuse("sim load", added.error());
    begin += length + 1;
  }
  load = as_kind(options, std::move(load));
  if (options.mps_server) options.title = sim::kMpsServerName;
  auto writer = sim::open_simulation();
  if (!writer) return cannot("sim load", writer.error());
  const auto targets =
      sim::find_load_targets(options.gpus.empty() ? sim::visible_gpus(writer->state()) : options.gpus, writer->state());
  if (!targets) return refuse("sim load", targets.error());
  if (const auto fits = sim::check_load_memory(load, *targets, writer->state()); !fits)
    return refuse("sim load", fits.error());
  sim::show_as(options.title, argc, argv);
  if (const auto done = sim::hold_and_wait(load, *writer, *targets, *sim::simulation_folder()); !done)
    return cannot("sim load", done.error());
  return 0;
}

// ---- lull sim set, fault, clear

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

// ---- lull sim reset: what `nvidia-smi --gpu-reset` does

constexpr int kHeld = 1;  // exit status

constexpr const char* kSimResetAbout =
    "Resets a simulated GPU as `nvidia-smi --gpu-reset` does: only while no process holds it, be it through the\n"
    "library, as a load, or by an open device file. The fault `reset` is over then. If a process holds it, the exit\n"
    "status is 1 and the holders are named.\n";

std::string listed(const std::vector<sim::DeviceUser>& holders) {
  std::vector<std::string> each;
  for (const sim::DeviceUser& holder : holders)
    each.push_back(holder.name.empty() ? fmt::format("{}", holder.pid)
                                       : fmt::format("{} ({})", holder.pid, printable(holder.name)));
  return fmt::format("{}", fmt::join(each, ", "));
}

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
    if (const auto holders = sim::device_users(mapping, folder, static_cast<unsigned>(gpu)); !holders.empty())
      return complain(fmt::format("sim reset: GPU {} is in use by {}", gpu, listed(holders)), kHeld);
  for (const std::size_t gpu : *gpus)
    if (const auto done = writer->end_reset_required(static_cast<unsigned>(gpu)); !done)
      return cannot(kName, done.error());
  return 0;
}

// ---- lull sim show, models: as the simulation itself knows it; a client's view, through NVML, is `lull status`

constexpr const char* kShowAbout =
    "Shows the simulated GPUs as they are now: values (* was set by hand), faults in force, processes.\n";
constexpr const char* kModelsAbout =
    "Lists the GPU models that can be simulated, by the names that --gpus and scenarios take.\n";

int sim_show(int argc, char** argv) {
  constexpr std::string_view kName = "sim show";
  bool json = false;
  CommandLine line(kShowAbout, "lull sim show");
  line.flag(shared::kJson, json, shared::kOneObject);
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
    fmt::print("{:<11} {:<30} {:>10}  {:>3.0f} W idle, {:>3.0f} W with a context, {:>4.0f} W at most{}{}\n", name,
               gpu->name, format_size(static_cast<double>(gpu->memory_total)), gpu->power_idle, gpu->power_context,
               gpu->power_limit, gpu->fans == 0 ? ", no fan" : "", gpu->mig_capable != 0 ? ", MIG" : "");
  }
  return 0;
}

// ---- lull sim

constexpr std::array kSubcommands = {
    Command{"set", "change values of a simulated GPU", sim_set},
    Command{"load", "be a process that holds GPUs", sim_load},
    Command{"fault", "make a GPU, a call or the driver fail", sim_fault},
    Command{"clear", "end faults, take back what was set", sim_clear},
    Command{"reset", "reset a GPU that nobody holds", sim_reset},
    Command{"show", "what is simulated now; --json", sim_show},
    Command{"models", "the GPU models there are", sim_models},
};

constexpr const char* kSimAbout =
    "Runs COMMAND (your shell if there is none) and all that it starts among simulated GPUs: every\n"
    "program that speaks NVML sees NVIDIA's; AMD's, Intel's and Jetson's have their files under LULL_SIM.\n"
    "The exit status is the command's own.\n";

constexpr const char* kSimInside = "Inside, or wherever LULL_SIM is set to the folder of a running simulation:\n\n";

constexpr const char* kSimExamples =
    "\nExamples:\n"
    "  lull sim --gpus 2xH100,1xT4 -- nvidia-smi\n"
    "  lull sim --gpus 4\n"
    "  $ lull sim set 0 util=35 power=180 mem_used=8GiB temp=60\n"
    "  $ lull sim load --gpu 1 --util 90 --for 30s &\n"
    "  $ lull status\n";

struct Options {
  std::string gpus;
  std::string scenario;
  std::string speed;
  std::string host;
};

void describe(CommandLine& line, Options& options) {
  line.usage("[--gpus LIST | --scenario FILE.toml] [--speed N] [--host NAME] [-- COMMAND…]");
  line.option("--gpus", options.gpus, "4, H100, or 2xMI300X,1xH100; `lull sim models` lists the models", "1")
      .value("LIST")
      .not_empty("2xH100,1xT4");
  line.option("--scenario", options.scenario,
              "GPUs and what happens to them over time, see docs/simulator.md (default: none)")
      .value("FILE")
      .not_empty("night.toml");
  line.option("--speed", options.speed, "the scenario's clock runs N times as fast: 60 makes its hour a minute", "1")
      .value("N")
      .not_empty("60");
  line.option("--host", options.host,
              "the machine's name, which traces have; its GPUs have UUIDs of their own (default: "
              "this machine's)")
      .value("NAME")
      .not_empty("node7");
  line.footer(kSimInside + help_of_subcommands("sim", kSubcommands) + kSimExamples);
}

std::string unexpected_word(std::string_view word) {
  const std::string hint = did_you_mean(word, kSubcommands);
  return fmt::format("'{}' is not expected here{}", printable(word),
                     hint.empty()
                         ? fmt::format(": a command comes after --, as in `lull sim --gpus 4 -- {}`", printable(word))
                         : hint);
}

Result<double> parse_speed(std::string_view text) {
  const auto speed = to_double(text.ends_with('x') ? text.substr(0, text.size() - 1) : text);
  if (!speed || !(*speed >= 0.001 && *speed <= 1e6))
    return fail(fmt::format("--speed {}: a number from 0.001 to 1000000 would be right, such as 60", printable(text)));
  return *speed;
}

Result<std::string> parse_host(const std::string& text) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
  if (text.size() > 64 || text.find_first_not_of(kAllowed) != std::string::npos)
    return fail(fmt::format("--host {}: up to 64 letters, digits, dots and dashes would be right, such as node7",
                            printable(text)));
  return text;
}

Result<sim::Scenario> make_scenario(const Options& options) {
  if (!options.gpus.empty() && !options.scenario.empty())
    return fail("--gpus and --scenario: the scenario says which GPUs there are, give one of them");
  const double speed = options.speed.empty() ? 0 : TRY(parse_speed(options.speed));
  sim::Scenario scenario;
  if (!options.scenario.empty())
    scenario = TRY(sim::load_scenario(options.scenario));
  else
    scenario.gpus = TRY(sim::parse_gpus(options.gpus.empty() ? "1" : options.gpus));
  if (speed > 0) scenario.speed = speed;
  scenario.host = TRY(parse_host(options.host));
  return scenario;
}

void greet(const sim::Scenario& scenario) {
  fmt::print(
      stderr,
      "lull: {} simulated GPU{}; `lull status` shows {}, `lull sim --help` says how to change {}; exit ends it\n",
      scenario.gpus.size(), scenario.gpus.size() == 1 ? "" : "s", scenario.gpus.size() == 1 ? "it" : "them",
      scenario.gpus.size() == 1 ? "it" : "them");
}

}  // namespace

int sim_command(int argc, char** argv) {
  if (const auto status = run_subcommand(kSubcommands, argc, argv)) return *status;
  Options options;
  CommandLine line(kSimAbout, "lull sim");
  describe(line, options);
  const int begins = line.command_begins(argc, argv);
  if (const auto status = line.parse(begins, argv)) return *status;
  std::vector<std::string> command(argv + begins, argv + argc);
  if (!command.empty() && command.front() != "--") return refuse("sim", Error{unexpected_word(command.front())});
  if (!command.empty()) command.erase(command.begin());
  const auto scenario = make_scenario(options);
  if (!scenario) return refuse("sim", scenario.error());
  const auto end = sim::simulate(*scenario, command, [&] {
    if (command.empty() && ::isatty(STDERR_FILENO) == 1) greet(*scenario);
  });
  return end ? ended(*end) : cannot("sim", end.error());
}

}  // namespace lull
