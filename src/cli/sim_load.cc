// `lull sim load`: a process that holds simulated GPUs as a CUDA program would.
// It is in the process list, has the device files open, uses memory and keeps
// the GPU busy in phases; whatever ends it, it is gone from the list at once.

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/sim.h"
#include "cli/sim_args.h"
#include "cli/watch_options.h"
#include "sim/folder.h"
#include "sim/plan.h"
#include "sim/values.h"

namespace lull {
namespace {

constexpr std::string_view kName = "sim load";
constexpr std::uint64_t kContextMemory = std::uint64_t{512} << 20;  // what a CUDA context takes

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
  std::vector<sim::PhaseSpec> phases = std::vector<sim::PhaseSpec>(1);
  std::uint32_t kind = sim::kCompute;
  std::string title;
  int ready_fd = -1;  // closed once the load is there
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
  if (!options.phases.back().lasting) return fail("the phase before --then never ends: it needs a --for");
  if (options.phases.size() >= sim::kMaxSteps)
    return fail(fmt::format("more phases than the {} there is room for", sim::kMaxSteps));
  options.phases.emplace_back();
  bool any = false;
  while (args.more() && !args.at_option()) {
    TRY(parse_then(args.take(), options.phases.back()));
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
      TRY(parse_util(text, options.phases.back()));
    } else if (const auto memory = args.option("--mem", "a size, such as 8GiB")) {
      const std::string_view text = TRY(*memory);
      auto size = parse_size(text);
      if (!size) return std::unexpected(std::move(size).error().during("--mem"));
      options.phases.back().memory = *size;
    } else if (const auto time = args.option("--for", "a time, such as 30s")) {
      const std::string_view text = TRY(*time);
      options.phases.back().lasting = TRY(duration_option("--for", text));
    } else if (args.flag("--then")) {
      TRY(begin_phase(args, options));
    } else if (args.flag("--graphics")) {
      options.kind = sim::kGraphics;
    } else if (args.flag("--both")) {
      options.kind = sim::kCompute | sim::kGraphics;
    } else if (args.flag("--mps")) {
      options.kind = sim::kMps;
    } else if (args.flag("--mps-server")) {
      options.kind = sim::kCompute;
      options.title = sim::kMpsServerName;
      sim::PhaseSpec& phase = options.phases.back();
      phase.util = phase.util.value_or(0);
      phase.memory = phase.memory.value_or(sim::kMpsServerMemory);
    } else if (const auto title = args.option("--as", "a command line, such as 'python train.py'")) {
      options.title = TRY(*title);
    } else if (const auto ready = args.option("--ready-fd", "a file descriptor")) {
      options.ready_fd = static_cast<int>(to_unsigned(TRY(*ready)).value_or(0));
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

struct Target {
  std::size_t gpu = 0;
  std::uint32_t mig = sim::kNone;
};

Result<Target> find_mig(std::string_view uuid, const sim::State& state) {
  for (std::size_t gpu = 0; gpu < state.gpu_count; ++gpu)
    for (std::uint32_t mig = 0; mig < state.gpus[gpu].mig_count; ++mig)
      if (std::string_view(state.gpus[gpu].mig[mig].uuid).starts_with(uuid)) return Target{gpu, mig};
  return fail(fmt::format("no MIG device has a UUID that begins with '{}'", printable(uuid)));
}

Result<std::vector<Target>> find_targets(std::string_view text, const sim::State& state) {
  std::vector<Target> targets;
  for (const std::string_view part : split(text, ',')) {
    if (part.starts_with("MIG-")) {
      targets.push_back(TRY(find_mig(part, state)));
      continue;
    }
    const auto colon = part.find(':');
    for (const std::size_t gpu : TRY(resolve_gpus(part.substr(0, colon), state))) {
      Target target{gpu, sim::kNone};
      if (colon != std::string_view::npos) {
        const auto mig = to_unsigned(part.substr(colon + 1));
        if (!mig || *mig >= state.gpus[gpu].mig_count)
          return fail(
              fmt::format("there is no MIG device {}: GPU {} has {}", printable(part), gpu, state.gpus[gpu].mig_count));
        target.mig = static_cast<std::uint32_t>(*mig);
      }
      targets.push_back(target);
    }
  }
  return targets;
}

// As a CUDA program: what CUDA_VISIBLE_DEVICES says, else the first GPU.
std::string default_gpus() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible != nullptr && *visible != '\0' ? visible : "0";
}

Result<> check_memory(const Options& options, const std::vector<Target>& targets, const sim::State& state) {
  for (const Target& target : targets)
    for (const sim::PhaseSpec& phase : options.phases)
      if (const auto total = state.gpus[target.gpu].memory_total; phase.memory.value_or(0) > total)
        return fail(fmt::format("{} is more memory than GPU {} has: {}",
                                format_size(static_cast<double>(*phase.memory)), target.gpu,
                                format_size(static_cast<double>(total))));
  return {};
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

// The one who runs the simulation: when it is gone, so is the driver, and we are held by nothing.
Fd watch_owner(const std::string& folder) {
  const auto pid = to_pid(trim(read_file(folder + "/owner").value_or("")));
  if (!pid) return {};
  return Fd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0)));
}

void wait_for_end(const sim::State& state, std::int64_t end_ns, const Fd& owner) {
  for (;;) {
    int milliseconds = -1;
    if (end_ns != sim::kForever) {
      const std::int64_t left = sim::boot_time(state, end_ns) - sim::boot_now_ns();
      if (left <= 0) return;
      milliseconds = static_cast<int>(std::min<std::int64_t>(left / 1'000'000 + 1, 60'000));
    }
    pollfd wait{owner.get(), POLLIN, 0};
    ::poll(&wait, 1, milliseconds);  // a negative descriptor is left out
    if (wait.revents != 0) return;
  }
}

Result<> hold_and_wait(const Options& options, sim::Writer& writer, const std::vector<Target>& targets,
                       const std::string& folder) {
  const Fd owner = watch_owner(folder);
  std::vector<Fd> files;
  for (const char* name : {"/dev/nvidiactl", "/dev/nvidia-uvm"}) files.push_back(TRY(open_file(folder + name, O_RDWR)));
  std::vector<sim::Hold> holds;
  const sim::LoadSteps made = sim::make_steps(options.phases, kContextMemory);
  std::int64_t end_ns = sim::kForever;
  for (const Target& target : targets) {
    files.push_back(TRY(open_file(sim::device_file(folder, target.gpu), O_RDWR)));
    sim::Load load;
    load.gpu = static_cast<std::uint32_t>(target.gpu);
    load.mig = target.mig;
    load.kind = options.kind;
    load.step_count = static_cast<std::uint32_t>(made.steps.size());
    std::copy(made.steps.begin(), made.steps.end(), std::begin(load.steps));
    // Its end is in the state already: it does not depend on when we wake up.
    if (made.end_ns != sim::kForever) load.end_ns = end_ns = writer.mapping().now_ns() + made.end_ns;
    holds.push_back(TRY(writer.hold(load)));
  }
  if (options.ready_fd >= 0) ::close(options.ready_fd);
  wait_for_end(writer.state(), end_ns, owner);
  return {};
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
  auto writer = open_simulation();
  if (!writer) return cannot(kName, writer.error());
  const auto targets = find_targets(options->gpus.empty() ? default_gpus() : options->gpus, writer->state());
  if (!targets) return refuse(kName, targets.error());
  if (const auto fits = check_memory(*options, *targets, writer->state()); !fits) return refuse(kName, fits.error());
  rename_to(options->title, argc, argv);
  if (const auto done = hold_and_wait(*options, *writer, *targets, *simulation_folder()); !done)
    return cannot(kName, done.error());
  return 0;
}

}  // namespace lull
