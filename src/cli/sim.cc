// `lull sim`: runs a command among simulated GPUs.

#include "cli/sim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "base/text.h"
#include "cli/command.h"
#include "sim/args.h"
#include "sim/simulate.h"
#include "view/help.h"

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

constexpr std::string_view kHelp =
    "usage: lull sim [--gpus LIST | --scenario FILE.toml] [--speed N] [-- COMMAND…]\n\n"
    "Runs COMMAND (your shell if there is none) and all that it starts among simulated GPUs: every\n"
    "program that speaks NVML sees them. The exit status is the command's own.\n\n"
    "  --gpus LIST      4, H100, or 2xH100,1xT4; `lull sim models` lists the models (default 1)\n"
    "  --scenario FILE  GPUs and what happens to them over time, see docs/simulator.md (default: none)\n"
    "  --speed N        the scenario's clock runs N times as fast: 60 makes its hour a minute (default 1)\n\n"
    "Inside, or wherever LULL_SIM is set to the folder of a running simulation:\n\n";

constexpr std::string_view kExample =
    "\nExamples:\n"
    "  lull sim --gpus 2xH100,1xT4 -- nvidia-smi\n"
    "  lull sim --gpus 4\n"
    "  $ lull sim set 0 util=35 power=180 mem_used=8GiB temp=60\n"
    "  $ lull sim load --gpu 1 --util 90 --for 30s &\n"
    "  $ lull status\n";

int help() {
  std::string text(kHelp);
  for (const Command& command : kSubcommands)
    text += fmt::format("  lull sim {:<7} {}\n", command.name, command.summary);
  return show_help(text + std::string(kExample));
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

Result<Options> parse(sim::Args& args) {
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
      return fail(sim::unknown_option(args.peek(), "sim", {"--gpus", "--scenario", "--speed", "--help"}));
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

void greet(const sim::Scenario& scenario) {
  fmt::print(
      stderr,
      "lull: {} simulated GPU{}; `lull status` shows {}, `lull sim --help` says how to change {}; exit ends it\n",
      scenario.gpus.size(), scenario.gpus.size() == 1 ? "" : "s", scenario.gpus.size() == 1 ? "it" : "them",
      scenario.gpus.size() == 1 ? "it" : "them");
}

}  // namespace

int show_help(std::string_view text) {
  fmt::print("{}", set_paragraphs(text, help_width(STDOUT_FILENO)));
  return 0;
}

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
  sim::Args args(argc, argv);
  if (args.flag("--help", "-h")) return help();
  const auto options = parse(args);
  if (!options) return refuse("sim", options.error());
  const auto scenario = make_scenario(*options);
  if (!scenario) return refuse("sim", scenario.error());
  const auto end = sim::simulate(*scenario, options->command, [&] {
    if (options->command.empty() && ::isatty(STDERR_FILENO) == 1) greet(*scenario);
  });
  return end ? ended(*end) : cannot("sim", end.error());
}

}  // namespace lull
