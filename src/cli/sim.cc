// `lull sim`: runs a command among simulated GPUs.

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "cli/sim.h"
#include "sim/models.h"
#include "sim/opened.h"
#include "sim/show.h"
#include "sim/simulate.h"

namespace lull {
namespace {

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
  std::string more(kSimInside);
  for (const Command& command : kSubcommands)
    more += fmt::format("  lull sim {:<7} {}\n", command.name, command.summary);
  line.footer(more + kSimExamples);
}

std::string unexpected_word(std::string_view word) {
  std::vector<std::string_view> names;
  for (const Command& command : kSubcommands) names.push_back(command.name);
  const std::string hint = did_you_mean(word, names);
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

Error one_too_many(std::string_view word) { return {fmt::format("'{}' is one argument too many", printable(word)), 0}; }

int refuse(std::string_view command, const Error& error) {
  return complain(fmt::format("{}: {}", command, error.message()), kExitUsage);
}

int cannot(std::string_view command, const Error& error) {
  return complain(fmt::format("{}: {}", command, error.message()), kExitFailure);
}

int sim_command(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  for (const Command& command : kSubcommands)
    if (command.name == word) return command.run(argc - 1, argv + 1);
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

// `lull sim show` and `lull sim models`: what is simulated, as the simulation
// itself knows it (a client's view, through NVML, is `lull status`).

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

}  // namespace lull
