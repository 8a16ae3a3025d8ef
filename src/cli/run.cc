// `lull run`: run a command, and end it with all its processes when its GPUs sit idle.

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "gpu/snapshot.h"
#include "session/console.h"
#include "session/machine.h"
#include "session/run_session.h"
#include "session/trace_log.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kRunAbout =
    "Runs CMD and ends it, with every process it started, when its GPUs sit idle for as\n"
    "long as the rule says. The evidence is shown first. A value that cannot be read is\n"
    "never taken for idle. A job is judged by its own GPUs: those of --gpus, else those that it\n"
    "was given (CUDA_VISIBLE_DEVICES, its lease, its Slurm allocation), else those on which its\n"
    "processes have a context; before it has one it is not judged.\n";
constexpr const char* kRunMore =
    "A server waits for its users: give it 2h and more, --idle 'util < 1 for 2h'.\n\n"
    "Exit status: CMD's own (128+N if signal N ended it); 124 ended for idleness or --max-time;\n"
    "2 the command line was wrong; 125 lull could not; 126, 127 CMD could not be run, was not found.\n\n"
    "Examples:\n"
    "  lull run -- python3 train.py\n"
    "  lull run --idle 'util < 1 for 20m' --evidence ~/hangs -- torchrun train.py\n"
    "  lull run --idle 'util < 1 and cpu < 5 for 10m' --restart 3 -- ./resume.sh\n"
    "  lull run --also $(pgrep -o raylet) -- python3 tune.py\n";

struct RunOptions {
  RunSettings settings;
  WatchOptions watch;
  std::string warn_by;
  std::string signal;
  std::string grace;
  std::string backoff = "30s";
  std::string max_time;
  std::string hook_limit = "30s";
  std::string record;
  std::string leftovers = "keep";
  std::string act = "end";
  ParkCommandOptions park;
  bool no_cgroup = false;
};

void describe_options(CommandLine& line, RunOptions& options, const Settings& known) {
  add_watch_options(line, options.watch, known, "the job's own");
  RunSettings& settings = options.settings;
  line.option("--warn-by", options.warn_by, "warn when this rule fires, and end nothing; none: never").value("RULE");
  line.option(shared::kEvidence, settings.evidence, "the job is ended");
  line.option("--record", options.record,
              "also write a trace of the job and its GPUs for `lull replay`; an existing one is appended to (default: "
              "none)")
      .value("FILE");
  line.option("--on-idle", settings.on_idle,
              "before the job is ended, run CMD with sh -c, the facts in LULL_* variables and as JSON on its stdin "
              "(default: "
              "nothing)")
      .value("CMD");
  line.option("--on-idle-limit", options.hook_limit, "how long the command of --on-idle may take").value("TIME");
  line.option(shared::kSignal, options.signal, "all processes of the job get");
  line.option(shared::kGrace, options.grace);
  line.option("--do", options.act, "what is done with an idle job: end it, or park it (lull-park(1))")
      .value("end|park");
  add_park_options(line, options.park);
  line.option("--restart", settings.restarts, "start CMD again after it was ended for idleness, at most N times")
      .value("N");
  line.option("--backoff", options.backoff, "wait before a restart").value("TIME");
  line.option("--max-time", options.max_time, "end the job after this long, idle or not (default: never)")
      .value("TIME");
  line.option(
          "--leftovers", options.leftovers,
          "processes of the job that outlive CMD: keep them (one line names those that hold GPU memory), or end them "
          "as the job would be ended")
      .value("end|keep");
  line.flag(shared::kDryRun, settings.common.dry_run, "; the job runs on, and is watched on");
  line.flag(shared::kRequireGpu, settings.common.require_gpu, "do not start CMD");
  line.flag(shared::kNoCgroup, options.no_cgroup, "follow the job's processes by /proc alone");
}

// What is judged, and how: said at the start.
std::string start_line(const RunOptions& options, const Settings& known) {
  const SessionSettings& common = options.settings.common;
  std::string text = fmt::format("watching: {}", rule_text(known, options.watch.idle, common.policy.idle));
  if (common.policy.arm) text += ", armed by " + to_text(*common.policy.arm);
  text +=
      fmt::format("; judged after {}, sampled every {}", format_duration(common.delay), format_duration(common.every));
  if (options.warn_by == "hung")
    text += "; warns of hangs";
  else if (common.warn_by)
    text += fmt::format("; warns when `{}` holds", printable(options.warn_by));
  return text;
}

Result<> settle(RunOptions& options, const Settings& known) {
  RunSettings& settings = options.settings;
  TRY(settle_watch(options.watch, known, settings.common));
  settings.use_cgroup = !options.no_cgroup;
  settings.common.watch_work = !options.record.empty();
  if (options.warn_by != "none") settings.common.warn_by = TRY(known.rule_option("--warn-by", options.warn_by));
  settings.ending.signal = TRY(signal_option("--signal", options.signal));
  settings.ending.grace = TRY(duration_option("--grace", options.grace));
  constexpr std::array<std::string_view, 2> kDo = {"end", "park"};
  if (TRY(choice_option("--do", options.act, kDo)) == 1) settings.park = TRY(settle_park(options.park, known, true));
  if (settings.park && settings.restarts > 0) return fail("--restart is of jobs that are ended, not of --do park");
  settings.backoff = TRY(duration_option("--backoff", options.backoff));
  constexpr std::array<std::string_view, 2> kLeftovers = {"end", "keep"};
  settings.leftovers =
      TRY(choice_option("--leftovers", options.leftovers, kLeftovers)) == 0 ? Leftovers::end : Leftovers::keep;
  settings.on_idle_limit = TRY(limit_option("--on-idle-limit", options.hook_limit));
  if (!options.max_time.empty()) settings.common.max_time = TRY(duration_option("--max-time", options.max_time));
  if (settings.common.max_time == Duration::zero())
    return fail("--max-time 0 would end the job at once: more would be right, such as 2h");
  return {};
}

// Of every row of a recording: whose job it is.
trace::UserCells job_user_cells(const std::vector<std::string>& command) {
  trace::UserCells who;
  who.host = host_cell();
  who.users = user_name(::getuid());
  who.command = short_command(command, "");
  who.job = fmt::format("run-{}", ::getpid());
  return who;
}

}  // namespace

int run_command(int argc, char** argv) {
  CommandLine line(kRunAbout, "lull run");
  line.usage("[options] [--] CMD [ARGUMENT…]");
  line.footer(kRunMore);
  RunOptions options;
  const auto settings = Settings::load();
  const Settings known = settings ? *settings : Settings();
  options.watch = {.idle = known.text(Setting::idle), .delay = "1m", .every = "5s"};
  options.warn_by = known.text(Setting::warn_by);
  options.signal = known.text(Setting::signal);
  options.grace = known.text(Setting::grace);
  options.settings.on_idle = known.text(Setting::on_idle);
  describe_options(line, options, known);
  const int command = line.command_begins(argc, argv);
  if (const auto status = line.parse(command, argv)) return *status;
  options.settings.command.assign(argv + command, argv + argc);
  if (!options.settings.command.empty() && options.settings.command.front() == "--")
    options.settings.command.erase(options.settings.command.begin());
  if (options.settings.command.empty())
    return complain("run: no command given; for example: lull run -- python3 train.py", kExitUsage);
  if (!settings) return complain(settings.error().message(), kExitUsage);
  if (const auto settled = settle(options, known); !settled)
    return complain("run: " + settled.error().message(), kExitUsage);

  const SystemClock clock;
  const Logger logger = make_logger(options.watch.console, clock);
  for (const std::string& note : known.notes()) logger.say(Level::warning, "settings", note);
  const auto console = run_console(logger, start_line(options, known));
  log_remarks(logger, options.settings.common.policy.idle);
  auto machine = Machine::open(clock);
  if (!machine) return complain(machine.error().message());
  if (options.record.empty()) return ended(RunSession(std::move(options.settings), **machine, *console).run());
  auto log = TraceLog::open(options.record, RecordingSink::layout(options.record, options.settings.common.policy,
                                                                  options.settings.common.signals));
  if (!log) return complain("run: --record: " + log.error().message());
  if (!log->note().empty()) logger.say(Level::note, "record", log->note());
  RecordingSink recording(*console, *std::move(log), job_user_cells(options.settings.command));
  const SessionEnd end = RunSession(std::move(options.settings), **machine, recording).run();
  recording.finish();
  return ended(end);
}

}  // namespace lull
