// `lull sim load`: a process that holds simulated GPUs as a CUDA program would.

#include <fmt/format.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/sim.h"
#include "cli/sim_args.h"
#include "cli/watch_options.h"
#include "sim/load.h"
#include "sim/opened.h"
#include "sim/values.h"

namespace lull {
namespace {

constexpr std::string_view kName = "sim load";

constexpr std::string_view kHelp =
    "usage: lull sim load [--gpu LIST] [--util PERCENT] [--mem SIZE] [--for TIME] [--then NAME=VALUE… --for TIME]…\n\n"
    "Holds simulated GPUs as a CUDA program would, until its phases end or it is killed.\n\n"
    "  --gpu LIST      0, 0,2, 1-3, all, a UUID, or 0:1 for MIG device 1 of GPU 0\n"
    "                  (left out: those of CUDA_VISIBLE_DEVICES, else 0)\n"
    "  --util PERCENT  how busy it keeps each GPU (90)\n"
    "  --mem SIZE      memory it uses on each (512MiB)\n"
    "  --for TIME      how long this phase lasts on the simulation's clock (for ever)\n"
    "  --then …        begins another phase: util=0, mem=2GiB or both\n"
    "  --graphics      it draws: listed as G instead of C; --both for C+G, --mps for M+C\n"
    "  --mps-server    it is the server of MPS: listed as C, and idle\n"
    "  --as TEXT       the command line that ps and nvidia-smi show for it\n\n"
    "example: lull sim load --gpu 0 --util 90 --mem 8GiB --for 30s --then util=0 --for 1m\n";

struct Options {
  std::string gpus;
  std::string title;
  sim::LoadSpec load;
};

Result<> parse_util(std::string_view text, sim::PhaseSpec& phase) {
  const double util = TRY(sim::parse_value(sim::value_info(sim::Metric::util), text));
  if (!(util >= 0 && util <= 100)) return fail("util is a percentage, such as util=90");
  phase.util = util;
  return {};
}

Result<> parse_then(std::string_view word, sim::PhaseSpec& phase) {
  const auto equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? "" : word.substr(equals + 1);
  if (name == "util") return parse_util(value, phase);
  if (name == "mem" || name == "mem_used") {
    phase.memory = TRY(parse_size(value));
    return {};
  }
  constexpr std::string_view kKnown[] = {"util", "mem"};
  const std::string hint = did_you_mean(name, kKnown);
  return fail(fmt::format("a phase has no '{}'{}", printable(name), hint.empty() ? ": util=0 and mem=2GiB are" : hint));
}

Result<> begin_phase(Args& args, Options& options) {
  if (!options.load.phases.back().lasting) return fail("the phase before --then never ends: it needs a --for");
  if (options.load.phases.size() >= sim::kMaxSteps)
    return fail(fmt::format("more phases than the {} there is room for", sim::kMaxSteps));
  options.load.phases.emplace_back();
  bool any = false;
  while (args.more() && !args.at_option()) {
    TRY(parse_then(args.take(), options.load.phases.back()));
    any = true;
  }
  if (!any) return fail("--then needs what changes, such as util=0");
  return {};
}

Result<Options> parse(Args& args) {
  Options options;
  while (args.more()) {
    if (const auto gpus = args.option("--gpu", "a GPU, such as 0")) {
      options.gpus = TRY(*gpus);
    } else if (const auto many = args.option("--gpus", "GPUs, such as 0,1")) {
      options.gpus = TRY(*many);
    } else if (const auto util = args.option("--util", "a percentage, such as 90")) {
      const std::string_view text = TRY(*util);
      TRY(parse_util(text, options.load.phases.back()));
    } else if (const auto memory = args.option("--mem", "a size, such as 8GiB")) {
      const std::string_view text = TRY(*memory);
      auto size = parse_size(text);
      if (!size) return std::unexpected(std::move(size).error().during("--mem"));
      options.load.phases.back().memory = *size;
    } else if (const auto time = args.option("--for", "a time, such as 30s")) {
      const std::string_view text = TRY(*time);
      options.load.phases.back().lasting = TRY(duration_option("--for", text));
    } else if (args.flag("--then")) {
      TRY(begin_phase(args, options));
    } else if (args.flag("--graphics")) {
      options.load.kind = sim::kGraphics;
    } else if (args.flag("--both")) {
      options.load.kind = sim::kCompute | sim::kGraphics;
    } else if (args.flag("--mps")) {
      options.load.kind = sim::kMps;
    } else if (args.flag("--mps-server")) {
      options.load.kind = sim::kCompute;
      options.title = sim::kMpsServerName;
      sim::PhaseSpec& phase = options.load.phases.back();
      phase.util = phase.util.value_or(0);
      phase.memory = phase.memory.value_or(sim::kMpsServerMemory);
    } else if (const auto title = args.option("--as", "a command line, such as 'python train.py'")) {
      options.title = TRY(*title);
    } else if (const auto ready = args.option("--ready-fd", "a file descriptor")) {
      options.load.ready_fd = static_cast<int>(to_unsigned(TRY(*ready)).value_or(0));
    } else if (args.at_option()) {
      return fail(unknown_option(
          args.peek(), kName,
          {"--gpu", "--util", "--mem", "--for", "--then", "--graphics", "--both", "--mps", "--mps-server", "--as"}));
    } else {
      return fail(fmt::format("'{}' is one argument too many", printable(args.peek())));
    }
  }
  return options;
}

// As a CUDA program: what CUDA_VISIBLE_DEVICES says, else the first GPU.
std::string default_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != '\0' ? visible : "0";
}

// ps and nvidia-smi read our arguments from our own memory: say there what we play.
void rename_to(const std::string& title, int argc, char** argv) {
  if (title.empty()) return;
  const std::string_view first = std::string_view(title).substr(0, title.find(' '));
  ::prctl(PR_SET_NAME, std::string(first.substr(first.find_last_of('/') + 1)).c_str());
  char* begin = program_invocation_name;                     // the first word of all: argv[0] here is the command's
  char* end = argv[argc - 1] + std::strlen(argv[argc - 1]);  // its last byte is not zero: the kernel shows one text
  const auto room = static_cast<std::size_t>(end - begin);
  const std::string text = title.substr(0, room);
  std::memset(begin, 0, room);
  std::ranges::copy(text, begin);
  *end = text.size() < room ? '.' : '\0';
}

}  // namespace

int sim_load(int argc, char** argv) {
  Args args(argc, argv);
  if (args.flag("--help", "-h")) {
    fmt::print("{}", kHelp);
    return 0;
  }
  auto options = parse(args);
  if (!options) return refuse(kName, options.error());
  auto writer = sim::open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto targets = sim::find_load_targets(options->gpus.empty() ? default_gpus() : options->gpus, writer->state());
  if (!targets) return refuse(kName, targets.error());
  if (const auto fits = sim::check_load_memory(options->load, *targets, writer->state()); !fits)
    return refuse(kName, fits.error());
  rename_to(options->title, argc, argv);
  if (const auto done = sim::hold_and_wait(options->load, *writer, *targets, *sim::simulation_folder()); !done)
    return cannot(kName, done.error());
  return 0;
}

}  // namespace lull
