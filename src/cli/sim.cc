// `lull sim`: runs a command among simulated GPUs.

#include "cli/sim.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/sim_args.h"
#include "cli/sim_session.h"
#include "sim/dstate.h"
#include "sim/folder.h"
#include "sim/machine.h"
#include "sim/plan.h"
#include "sim/scenario.h"

namespace lull {
namespace {

namespace fs = std::filesystem;

constexpr std::array kSubcommands = {
    Command{"set", "change values of a simulated GPU", sim_set},
    Command{"load", "be a process that holds GPUs", sim_load},
    Command{"fault", "make a GPU, a call or the driver fail", sim_fault},
    Command{"clear", "end faults, take back what was set", sim_clear},
    Command{"reset", "reset a GPU that nobody holds", sim_reset},
    Command{"show", "what is simulated now; --json", sim_show},
    Command{"models", "the GPU models there are", sim_models},
};

constexpr std::string_view kHelp =
    "usage: lull sim [--gpus LIST | --scenario FILE.toml] [--speed N] [-- COMMAND…]\n\n"
    "Runs COMMAND (your shell if there is none) and all that it starts among simulated GPUs: every\n"
    "program that speaks NVML sees them. The exit status is the command's own.\n\n"
    "  --gpus LIST      4, H100, or 2xH100,1xT4; `lull sim models` lists the models (1)\n"
    "  --scenario FILE  GPUs and what happens to them over time, see docs/simulator.md (none)\n"
    "  --speed N        the scenario's clock runs N times as fast: 60 makes its hour a minute (1)\n\n"
    "Inside, or wherever LULL_SIM is set to the folder of a running simulation:\n\n";

constexpr std::string_view kExample =
    "\nexample: lull sim --gpus 2xH100,1xT4 -- nvidia-smi\n"
    "         lull sim --gpus 4\n"
    "         $ lull sim set 0 util=35 power=180 mem_used=8GiB temp=60\n"
    "         $ lull sim load --gpu 1 --util 90 --for 30s &\n"
    "         $ lull status\n";

int help() {
  fmt::print("{}", kHelp);
  for (const Command& command : kSubcommands) fmt::print("  lull sim {:<7} {}\n", command.name, command.summary);
  fmt::print("{}", kExample);
  return 0;
}

struct Options {
  std::string gpus;
  std::string scenario;
  std::optional<double> speed;
  std::vector<std::string> command;
};

std::string unexpected_word(std::string_view word) {
  std::vector<std::string_view> names;
  for (const Command& command : kSubcommands) names.push_back(command.name);
  const std::string hint = did_you_mean(word, names);
  return fmt::format("'{}' is not expected here{}", printable(word),
                     hint.empty()
                         ? fmt::format(": a command comes after --, as in `lull sim --gpus 4 -- {}`", printable(word))
                         : hint);
}

Result<Options> parse(Args& args) {
  Options options;
  while (args.more()) {
    if (const auto gpus = args.option("--gpus", "a number of GPUs or models, such as 4 or 2xH100,1xT4")) {
      options.gpus = TRY(*gpus);
      if (options.gpus.empty()) return fail("--gpus needs a number of GPUs or models, such as 4 or 2xH100,1xT4");
    } else if (const auto file = args.option("--scenario", "a file, such as night.toml")) {
      options.scenario = TRY(*file);
      if (options.scenario.empty()) return fail("--scenario needs a file, such as night.toml");
    } else if (const auto speed = args.option("--speed", "a number, such as 60")) {
      const std::string_view text = TRY(*speed);
      options.speed = to_double(text.ends_with('x') ? text.substr(0, text.size() - 1) : text);
      if (!options.speed || !(*options.speed >= 0.001 && *options.speed <= 1e6))
        return fail(
            fmt::format("--speed {}: a number from 0.001 to 1000000 would be right, such as 60", printable(text)));
    } else if (args.flag("--")) {
      options.command = args.rest();
    } else if (args.at_option()) {
      return fail(unknown_option(args.peek(), "sim", {"--gpus", "--scenario", "--speed", "--help"}));
    } else {
      return fail(unexpected_word(args.peek()));
    }
  }
  if (!options.gpus.empty() && !options.scenario.empty())
    return fail("--gpus and --scenario: the scenario says which GPUs there are, give one of them");
  return options;
}

Result<sim::Scenario> make_scenario(const Options& options) {
  sim::Scenario scenario;
  if (!options.scenario.empty())
    scenario = TRY(sim::load_scenario(options.scenario));
  else
    scenario.gpus = TRY(sim::parse_gpus(options.gpus.empty() ? "1" : options.gpus));
  if (options.speed) scenario.speed = *options.speed;
  return scenario;
}

// The folder with the simulated libnvidia-ml.so.1: beside us in a build tree, under lib where we are installed.
Result<std::string> library_folder() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return fail(error.value(), "finding where lull is installed");
  const fs::path here = self.parent_path();
  std::vector<fs::path> places = {here / "sim", here / "../lib/lull/sim", here / "../lib64/lull/sim"};
#ifdef LULL_MULTIARCH
  places.push_back(here / "../lib" / LULL_MULTIARCH / "lull/sim");
#endif
  for (fs::directory_iterator it(here / "../lib", error), end; !error && it != end; it.increment(error))
    if (it->path().filename().string().find("-linux-") != std::string::npos) places.push_back(it->path() / "lull/sim");
  for (const fs::path& place : places)
    if (fs::exists(place / "libnvidia-ml.so.1", error)) return fs::canonical(place, error).string();
  return fail(fmt::format("the simulated libnvidia-ml.so.1 is neither in {} nor in {}: is lull installed whole?",
                          places[0].string(), fs::weakly_canonical(places[1], error).string()));
}

// NAME's value with `first` in front, unless it is in front already.
std::string prepended(const char* name, const std::string& first) {
  const char* old = std::getenv(name);
  if (old == nullptr || *old == '\0') return first;
  const std::string_view rest = old;
  return rest == first || rest.starts_with(first + ":") ? std::string(rest) : first + ":" + std::string(rest);
}

// Leases are the simulation's own, unless somebody chose a folder (and not an outer simulation did).
std::string leases_folder(const sim::Folder& folder) {
  const char* chosen = std::getenv("LULL_LEASES");
  const char* outer = std::getenv("LULL_SIM");
  if (chosen == nullptr || *chosen == '\0') return folder.leases();
  if (outer != nullptr && *outer != '\0' && std::string_view(chosen).starts_with(std::string(outer) + "/"))
    return folder.leases();
  return chosen;
}

std::vector<std::string> load_command(const sim::ProcessSpec& process) {
  std::vector<std::string> command = {"lull", "sim", "load", "--gpu"};
  std::vector<std::string> gpus;
  for (const std::size_t gpu : process.gpus)
    gpus.push_back(process.mig ? fmt::format("{}:{}", gpu, *process.mig) : fmt::format("{}", gpu));
  command.push_back(fmt::format("{}", fmt::join(gpus, ",")));
  if (process.kind == sim::kGraphics) command.emplace_back("--graphics");
  if (process.kind == (sim::kCompute | sim::kGraphics)) command.emplace_back("--both");
  if (process.kind == sim::kMps) command.emplace_back("--mps");
  if (!process.name.empty()) command.insert(command.end(), {"--as", process.name});
  for (std::size_t i = 0; i < process.phases.size(); ++i) {
    const sim::PhaseSpec& phase = process.phases[i];
    const double util = phase.util.value_or(90);
    if (i == 0 && phase.util) command.push_back(fmt::format("--util={}", util));
    if (i == 0 && phase.memory) command.push_back(fmt::format("--mem={}", *phase.memory));
    if (i > 0) command.emplace_back("--then");
    if (i > 0 && phase.util) command.push_back(fmt::format("util={}", util));
    if (i > 0 && phase.memory) command.push_back(fmt::format("mem={}", *phase.memory));
    if (phase.lasting) command.push_back(fmt::format("--for={}ns", phase.lasting->count()));
  }
  return command;
}

// Notes when loads die, so that the energy they used is right even if nobody looks.
class DeathWatch {
 public:
  explicit DeathWatch(const std::string& folder) : stop_(::eventfd(0, EFD_CLOEXEC)) {
    thread_ = std::thread([folder, fd = stop_.get()] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the main thread's
      if (auto writer = sim::Writer::open(folder)) (void)writer->watch_deaths(fd);
    });
  }
  DeathWatch(const DeathWatch&) = delete;
  DeathWatch& operator=(const DeathWatch&) = delete;
  ~DeathWatch() {
    const std::uint64_t one = 1;
    (void)!::write(stop_.get(), &one, sizeof one);
    thread_.join();
  }

 private:
  Fd stop_;
  std::thread thread_;
};

Session make_session(const Options& options, const sim::Scenario& scenario, const sim::Folder& folder,
                     const std::string& library, const sim::State& state) {
  Session session;
  session.command = options.command;
  session.environment = {
      {"LD_LIBRARY_PATH", prepended("LD_LIBRARY_PATH", library)},
      {"LULL_LEASES", leases_folder(folder)},
      {"LULL_SIM", folder.path()},
      {"LULL_DEV", folder.dev()},
      {"LULL_NVML", ""},  // would lead lull past the simulation
  };
  session.start = Instant(Duration(state.start_boot_ns));
  for (const sim::ProcessSpec& process : scenario.processes)
    if (!process.pid)
      session.processes.push_back(
          {Duration(sim::boot_time(state, process.at.count()) - state.start_boot_ns), load_command(process)});
  return session;
}

void greet(const sim::Scenario& scenario) {
  fmt::print(
      stderr,
      "lull: {} simulated GPU{}; `lull status` shows {}, `lull sim --help` says how to change {}; exit ends it\n",
      scenario.gpus.size(), scenario.gpus.size() == 1 ? "" : "s", scenario.gpus.size() == 1 ? "it" : "them",
      scenario.gpus.size() == 1 ? "it" : "them");
}

Result<int> simulate(const Options& options, const sim::Scenario& scenario) {
  const std::string library = TRY(library_folder());
  const sim::Plan plan = TRY(sim::make_plan(scenario));
  const SessionSignals signals;  // from here on there is something to tidy up
  const sim::Folder folder = TRY(sim::Folder::create(sim::folder_base(), plan.gpus.size()));
  TRY(sim::create_state(folder.path(), plan));
  TRY(sim::furnish_machine(folder.path(), plan));
  if (std::ranges::any_of(plan.faults, [](const auto& fault) { return fault.kind == sim::FaultKind::dstate; }))
    TRY(sim::serve_dstate(folder.path(), ::getpid()));
  sim::Writer writer = TRY(sim::Writer::open(folder.path()));
  const Session session = make_session(options, scenario, folder, library, writer.state());
  if (options.command.empty() && ::isatty(STDERR_FILENO) == 1) greet(scenario);
  const DeathWatch deaths(folder.path());
  auto status = run_session(session, signals);
  writer.close_simulation();
  return status;
}

}  // namespace

int sim_command(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  for (const Command& command : kSubcommands)
    if (command.name == word) return command.run(argc - 1, argv + 1);
  Args args(argc, argv);
  if (args.flag("--help", "-h")) return help();
  const auto options = parse(args);
  if (!options) return refuse("sim", options.error());
  const auto scenario = make_scenario(*options);
  if (!scenario) return options->scenario.empty() ? refuse("sim", scenario.error()) : cannot("sim", scenario.error());
  const auto status = simulate(*options, *scenario);
  return status ? *status : cannot("sim", status.error());
}

}  // namespace lull
