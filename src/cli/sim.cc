// `lull sim`: runs a command among simulated GPUs.

#include "cli/sim.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
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

constexpr const char* kAbout =
    "Runs COMMAND (your shell if there is none) and all that it starts among simulated GPUs: every\n"
    "program that speaks NVML sees them. The exit status is the command's own.\n";

constexpr const char* kInside = "Inside, or wherever LULL_SIM is set to the folder of a running simulation:\n\n";

constexpr const char* kExamples =
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
};

void describe(CommandLine& line, Options& options) {
  line.usage("[--gpus LIST | --scenario FILE.toml] [--speed N] [-- COMMAND…]");
  line.option("--gpus", options.gpus, "4, H100, or 2xH100,1xT4; `lull sim models` lists the models", "1")
      .value("LIST")
      .not_empty("2xH100,1xT4");
  line.option("--scenario", options.scenario,
              "GPUs and what happens to them over time, see docs/simulator.md (default: none)")
      .value("FILE")
      .not_empty("night.toml");
  line.option("--speed", options.speed, "the scenario's clock runs N times as fast: 60 makes its hour a minute", "1")
      .value("N")
      .not_empty("60");
  std::string more(kInside);
  for (const Command& command : kSubcommands)
    more += fmt::format("  lull sim {:<7} {}\n", command.name, command.summary);
  line.footer(more + kExamples);
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
  CommandLine line(kAbout, "lull sim");
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
