// `lull fill`: low-priority work on unused GPUs, paused at once when another process opens the GPU.

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "config/settings.h"
#include "fill/plan_file.h"
#include "fill/session.h"
#include "fill/sink.h"
#include "sense/processes.h"
#include "session/control.h"
#include "session/logger.h"
#include "view/screen.h"

namespace lull {
namespace {

constexpr const char* kFillAbout =
    "Runs a low-priority command on idle GPUs. When another process opens the GPU, the command\n"
    "is paused within milliseconds; it ends only if that process uses the GPU. No filler\n"
    "outlives lull, however lull ends.\n";
constexpr const char* kFillMore =
    "A GPU is free when the rule of --idle holds, no process computes on it or has its device file\n"
    "open, nobody has leased it (`lull pick`) or waits for it, and nobody types at a terminal.\n"
    "Monitoring programs (nvidia-smi, nvtop, DCGM, X, lull itself, what --ignore names) never count.\n\n"
    "With a FILE (TOML) there may be several fillers, each with its GPUs, priority, hours, user,\n"
    "log and limits; lull-fill(1) has all keys. It is read again when it changes, and on SIGHUP.\n\n"
    "Exit status: 128+N ended by signal N; 2 the command line or the file was wrong; 125 lull could not;\n"
    "--check: 0, or 2 where a filler could not be started; --status: 0, or 1 where no lull fill runs.\n\n"
    "Examples:\n"
    "  lull fill --per-gpu -- ./low-priority.sh\n"
    "  lull fill --gpus 2,3 --idle 'util < 5 for 10m' --grace 1m -- python3 background.py\n"
    "  lull fill /etc/lull/fill.toml\n"
    "  lull fill --check /etc/lull/fill.toml\n"
    "  lull fill --check --per-gpu -- ./low-priority.sh\n"
    "  lull fill --status\n";

struct FillCommand : FillCommandOptions {
  std::vector<std::string> file;
  std::vector<std::string> signal_from;
  std::string detect = "bpf";
  bool no_cgroup = false;
  bool check = false;
  bool status = false;
  bool json = false;
  LogOptions console;
};

void describe_options(CommandLine& line, FillCommand& command) {
  line.usage("[options] -- CMD [ARGUMENT…] | [options] FILE | --status [--json]");
  line.arguments("FILE", command.file, "a TOML file with one or more fillers, in place of CMD");
  line.option(shared::kGpus, command.gpus, "which GPUs", "those of the first GPU's vendor");
  line.flag("--per-gpu", command.per_gpu, "one CMD for each GPU; else one on all of them, when all are free");
  line.option(shared::kIdle, command.idle,
              "that must hold before a GPU is filled, or a time: the default rule for so long");
  line.each(shared::kSignalFrom, command.signal_from);
  line.option(shared::kEvery, command.every);
  line.option("--confirm", command.confirm, "how long a filler is paused to see whether the other process uses the GPU")
      .value("TIME");
  line.option(
          "--yield", command.yield,
          "what to do when another process opens the GPU: confirm: pause, end if it uses the GPU; stop: end at once; "
          "pause: pause while it leaves memory free; park: move it out of the GPU (lull-park(1))")
      .value("confirm|stop|pause|park");
  line.option(shared::kParkElse, command.park_else,
              "a filler that cannot be parked, with --yield park: keep it paused, or end it");
  line.option(shared::kCudaCheckpoint, command.cuda_checkpoint, shared::kConfiguredTool);
  line.option("--yield-cmd", command.yield_command,
              "park it with this command (sh -c) instead of ending it; LULL_FILLER_PID says which (default: none)")
      .value("CMD");
  line.option("--resume-cmd", command.resume_command, "and take it back with this command (default: none)")
      .value("CMD");
  line.option("--yield-limit", command.yield_limit, "how long these may take before it is ended instead").value("TIME");
  line.option(shared::kSignal, command.signal, "a filler that is to end gets");
  line.option(shared::kGrace, command.grace);
  line.flag("--once", command.once, "do not start it again once it has ended with status 0");
  line.option("--log", command.log,
              "append its output to this file; at 10 MiB a new one is begun, 3 old ones are kept (default: where "
              "lull's own goes)")
      .value("FILE");
  line.option("--nice", command.nice, "its nice value, -20 to 19").value("N");
  line.option("--user-idle", command.user_idle,
              "start nothing if a user typed at a terminal within this time; 0: ignore terminals")
      .value("TIME");
  line.option(shared::kHours, command.hours, "fill");
  line.each(shared::kExceptUser, command.except_user, "typing is ignored, as your own always is (default: none)");
  line.each("--ignore", command.ignore,
            "exact name of a program that may have GPUs open (default: monitoring programs)")
      .value("PROGRAM");
  line.flag("--ignore-hidden", command.ignore_hidden,
            "ignore processes whose open files cannot be read; for users other than root");
  line.option("--detect", command.detect, "how to detect that a device file is opened: the best way to try")
      .value("bpf|fanotify|inotify|scan");
  line.flag(shared::kNoCgroup, command.no_cgroup, "pause by SIGSTOP");
  line.flag(
      "--check", command.check,
      "start nothing: say what is wrong with FILE or the options, and whether each filler's user, folder, program and "
      "log are there");
  line.flag("--status", command.status, "what a running `lull fill` does on each GPU, and why");
  line.flag(shared::kJson, command.json, ", with --status");
  add_log_options(line, command.console, "only what is important", "also why each GPU waits");
}

// `name`: of what is checked, the file or the command.
int check(const FillSettings& settings, const std::string& name) {
  for (const std::string& doubt : doubts(settings)) complain(fmt::format("{}: {}", printable(name), doubt));
  const std::vector<std::string> missing = obstacles(settings);
  for (const std::string& one : missing) complain(fmt::format("{}: {}", printable(name), one));
  std::string text;
  for (const FillerSettings& filler : settings.fillers)
    text += fmt::format("{}: {} on {} {}, yields by {}\n", printable(filler.name), printable(filler.command[0]),
                        filler.per_gpu ? "each of GPUs" : "GPUs",
                        filler.gpus.empty() ? "of one vendor" : printable(filler.gpus), to_string(filler.yield));
  fmt::print("{}: {} filler{}, free means {}\n{}", printable(name), settings.fillers.size(),
             settings.fillers.size() == 1 ? "" : "s", to_text(settings.idle), text);
  return missing.empty() ? 0 : kExitUsage;
}

int status(bool json) {
  const std::vector<Reply> answers = ask_all(ControlOf::fill);
  if (json) {
    std::string all;
    for (const Reply& answer : answers)
      if (!answer.json.empty()) all += (all.empty() ? "" : ",") + answer.json;
    fmt::print("[{}]\n", all);
    return answers.empty() ? 1 : 0;
  }
  constexpr std::size_t kIndent = 4;
  const std::size_t width = screen_of(STDOUT_FILENO).width;
  for (const Reply& answer : answers) {
    const std::string text =
        (answer.json.empty() ? fmt::format("lull fill {}: ", answer.watcher) : "") + std::string(trim(answer.line));
    for (const std::string_view row : split(text, '\n')) fmt::print("{}\n", wrapped(row, width, kIndent));
  }
  return answers.empty() ? complain("no lull fill of yours runs here", 1) : 0;
}

int refuse(const std::string& why) { return complain("fill: " + why, kExitUsage); }

}  // namespace

int fill_command(int argc, char** argv) {
  CommandLine line(kFillAbout, "lull fill");
  line.footer(kFillMore);
  FillCommand command;
  describe_options(line, command);
  int ours = argc;
  for (int i = 1; i < argc; ++i)
    if (std::string_view(argv[i]) == "--") {
      ours = i;
      break;
    }
  std::vector<std::string> arguments;
  for (int i = ours + 1; i < argc; ++i) arguments.emplace_back(argv[i]);
  if (const auto status = line.parse(ours, argv)) return *status;
  if (command.status) return status(command.json);
  if (command.file.size() > 1)
    return refuse(fmt::format("'{}': one FILE, or -- before a command", printable(command.file[1])));
  const auto known = Settings::load();
  if (!known) return complain(known.error().message(), kExitUsage);
  auto signals = signals_with(known->signals(), command.signal_from);  // before a rule that names one
  if (!signals) return refuse(signals.error().message());
  if (const auto well = check(command.console); !well) return refuse(well.error().message());
  if (command.file.empty() == arguments.empty())
    return refuse(command.file.empty() ? "no command: use lull fill -- CMD…, or name a FILE"
                                       : "a FILE or a command, not both");
  const FillCommandOptions& of_command = command;
  if (!command.file.empty() && of_command != FillCommandOptions())
    return refuse(
        "FILE has all settings of its fillers: with FILE, only --check, --detect, --no-cgroup, --signal-from and "
        "options of the log are accepted");
  const auto way = parse_open_way(command.detect);
  if (!way) return refuse("--detect: " + way.error().message());
  auto settings = command.file.empty() ? settle(command, std::move(arguments)) : load_plan(command.file[0]);
  if (!settings) return refuse(settings.error().message());
  if (command.check) return check(*settings, command.file.empty() ? "fill" : command.file[0]);
  // Fillers on a cluster are jobs of their own, which its scheduler takes away: we would fill what it gives to others.
  if (inside_slurm())
    return complain(
        "fill: this is a Slurm job: under Slurm fillers are jobs in a preemptable partition (lull-fill(1) shows one)");

  const SystemClock clock;
  const Logger logger = make_logger(command.console, clock);
  FillConsole console(logger);
  for (const std::string& doubt : doubts(*settings)) console.note(Level::warning, "doubt", doubt);
  for (const std::string& one : obstacles(*settings)) console.note(Level::warning, "doubt", one);
  for (const Reply& other : ask_all(ControlOf::fill))
    console.note(
        Level::warning, "another",
        fmt::format("another lull fill runs here (pid {}): each treats the other's fillers as foreign processes",
                    other.watcher));
  FillOptions options{.best_way = *way, .use_cgroup = !command.no_cgroup};
  options.signals = *std::move(signals);
  if (!command.file.empty()) {
    options.file = command.file[0];
    options.reload = [file = command.file[0]] { return load_plan(file); };
  }
  return on_machine(clock, [&](Machine& machine) {
    return FillSession(*std::move(settings), std::move(options), machine, console).run();
  });
}

}  // namespace lull
