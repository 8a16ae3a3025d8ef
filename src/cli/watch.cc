// `lull watch`: watch the GPUs, act when a rule fires.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/shared_options.h"
#include "session/console.h"
#include "session/control.h"
#include "session/each_options.h"
#include "session/fleet_session.h"
#include "session/machine.h"
#include "session/watch_session.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kWatchAbout =
    "Watches the GPUs and acts, once, when the rule fires; with --per, on each GPU or job by itself, again\n"
    "and again. A value that cannot be read is never taken for idle. With --also it judges that work: the\n"
    "GPUs on which it has a context, its cpu, io, quiet and job_util.\n";
constexpr const char* kWatchMore =
    "Actions, done in the order given:\n"
    "  exit[=STATUS]      end watching, with this status (must be the last; default 0)\n"
    "  kill=PID           end a process and its children: --signal, then after --grace SIGKILL\n"
    "  kill=PGID:N        end a process group\n"
    "  kill=parent        end the process that started lull\n"
    "  kill=container     end every process of the container that lull is in\n"
    "  kill=holders, end  with --per: end the processes that hold the GPU\n"
    "  park               with --per: move the job out of its GPUs by cuda-checkpoint; park=PID: a process and its "
    "children (lull-park(1))\n"
    "  slurm=VERB         with --slurm, once all nodes of the job agree: comment, signal:TERM, requeue, requeuehold, "
    "cancel\n"
    "  exec=CMD           run CMD with sh -c, the facts in LULL_* variables and as JSON on its stdin\n"
    "  shutdown, reboot   this machine; --warn 2m tells its users first\n"
    "  determined         end the Determined task that lull is in\n"
    "  notify[=WHERE]     tell Slack, Discord, Teams, ntfy or any web hook; WHERE is file:PATH or variable:NAME with "
    "the address, also as slack:file:PATH and so on (default: as `lull config` says)\n"
    "  mail[=ADDRESS]     write to ADDRESS, with --per to the users of the job, by sendmail or mail\n\n"
    "A server waits for its users: give it 2h and more, --idle 'util < 1 for 2h'.\n\n"
    "Exit status: 0 done; STATUS of exit=; 1 what --also names has ended; 2 the command line was wrong;\n"
    "125 an action failed or lull could not; 128+N signal N.\n\n"
    "Examples:\n"
    "  lull watch --arm 'util > 50 for 1m' --idle 'util < 1 for 30m' --do shutdown --warn 5m\n"
    "  lull watch --do notify=file:/etc/lull/slack --do kill=parent\n"
    "  lull watch --per job --step 'util < 1 for 2h: notify' --step 'util < 1 for 4h: end' --except-user root\n"
    "  lull watch --also 4711 --do kill=4711\n"
    "  lull watch --cancel\n";

struct WatchCommand {
  WatchSettings settings;
  WatchOptions watch;
  std::vector<std::string> actions;
  EachOptions each;
  ParkCommandOptions park;
  std::string warn;
  std::string signal;
  std::string grace;
  std::string retry_after = "10s";
  std::string limit = "30s";
  std::string slurm;
  std::string from;
  std::string match;
  std::string labels;
  std::string token_file;
  bool slurm_order = false;
  std::optional<CommandLine::Option> every = {};
  std::optional<CommandLine::Option> slurm_option = {};
  bool cancel = false;
};

void add_each_options(CommandLine& line, WatchCommand& command, const Settings& known) {
  EachOptions& options = command.each;
  line.option(shared::kPer, options.per, " that has one (default: all GPUs as one)");
  line.each("--step", options.steps,
            "with --per: one step, 'RULE: ACTION'; may be repeated; in place of --idle and --do (default: "
            "none; with --slurm: slurm.steps of `lull config`)")
      .value("RULE: ACTION");
  line.each(shared::kExceptUser, options.except_users,
            fmt::format("processes are left alone, with --per (default: {})",
                        known.text(Setting::except_users).empty() ? "none" : known.text(Setting::except_users)));
  line.each("--only-user", options.only_users, "with --per: act on these users' processes only (default: all users)")
      .value("USER,…");
  command.slurm_option =
      line.option(
              "--slurm", command.slurm,
              "with --per job: Slurm's jobs alone, each by all GPUs that Slurm gave it here; [=DIR]: where `lull slurm "
              "prolog` writes (default: LULL_SLURM_DIR, or /run/lull/slurm), or gpustat:DIR, dcgm:DIR")
          .optional_value()
          .value("[=DIR]");
  line.option("--from", command.from,
              "with --per job --slurm: judge the jobs of the whole cluster by what this Prometheus has of their GPUs, "
              "every 30s, without a daemon on the nodes (default: the GPUs here)")
      .value("prometheus:URL")
      .not_empty("prometheus:http://localhost:9090");
  line.option(shared::kMatch, command.match, "cluster=\"a\"");
  line.option(shared::kLabels, command.labels, ", of --from, such as host=node (default: by its name)");
  line.option(shared::kTokenFile, command.token_file, "the bearer token of --from");
  line.flag("--slurm-order", command.slurm_order,
            "with --from: the exporters number GPUs as Slurm does; `lull slurm check` on each node says whether "
            "(default: only jobs that have all GPUs of their nodes are judged)");
  line.option(shared::kHours, options.hours, "with --per: act");
  line.option("--keep-at-most", options.keep_at_most, "with --per: the most time that `lull keep` can get")
      .value("TIME");
}

// The option that says which rule.
CommandLine::Option describe_options(CommandLine& line, WatchCommand& command, const Settings& known) {
  line.each("--do", command.actions, "what to do when the rule fires, see below; may be given several times (required)")
      .value("ACTION");
  const CommandLine::Option idle = add_watch_options(line, command.watch, known, "all", &command.every);
  add_each_options(line, command, known);
  line.option(shared::kEvidence, command.settings.evidence, "the actions");
  line.flag("--repeat", command.settings.repeat, "go on watching after it was done; without --per, lull ends then");
  line.option("--warn", command.warn,
              "warn logged-in users this long before a shutdown or reboot (default: no warning)")
      .value("TIME");
  line.flag("--cancel", command.cancel, "call off what a running `lull watch` is about to do");
  line.option("--retry", command.settings.retries.most, "how often a failed action is tried again").value("N");
  line.option("--retry-after", command.retry_after, "wait before another try").value("TIME");
  add_park_options(line, command.park);
  line.option(shared::kLimit, command.limit, "the command of an action");
  line.option(shared::kSignal, command.signal, "kill= sends");
  line.option(shared::kGrace, command.grace);
  line.flag(shared::kDryRun, command.settings.common.dry_run, ", each time, and watch on until Ctrl-C");
  line.flag(shared::kRequireGpu, command.settings.common.require_gpu, "refuse to watch");
  return idle;
}

Result<> settle(WatchCommand& command, const Settings& known, bool idle_given) {
  WatchSettings& settings = command.settings;
  TRY(settle_watch(command.watch, known, settings.common));
  TRY(duration_option("--keep-at-most", command.each.keep_at_most));  // a mistake is one also without --per
  settings.common.policy.rearm = settings.repeat && settings.common.policy.arm.has_value();
  if (command.actions.empty() && command.each.steps.empty()) {
    if (!command.each.slurm || idle_given)
      return fail("--do says what to do; for example --do notify, 'exec=CMD' or shutdown");
    command.each.steps = known.list(Setting::slurm_steps);
    command.each.steps_place = known[Setting::slurm_steps].from + ": slurm.steps";
    if (command.each.steps.empty())
      return fail(
          "steps in [slurm] of lull.toml, or --step, say what to do; for example --step 'util < 1 for 2h: "
          "slurm=requeue'");
  }
  for (const std::string& text : command.actions) {
    auto action = settle_action(text, known);
    if (!action) return std::unexpected(std::move(action).error().during("--do"));
    settings.actions.push_back(*std::move(action));
  }
  for (std::size_t i = 0; i + 1 < settings.actions.size(); ++i)
    if (settings.actions[i].kind == ActionOption::Kind::exit) return fail("--do exit: nothing can come after it");
  if (settings.repeat && !settings.actions.empty() && settings.actions.back().kind == ActionOption::Kind::exit)
    return fail("--repeat and --do exit contradict each other");
  settings.how.ending.signal = TRY(signal_option("--signal", command.signal));
  settings.how.ending.grace = TRY(duration_option("--grace", command.grace));
  settings.retries.after = TRY(duration_option("--retry-after", command.retry_after));
  settings.how.limit = TRY(limit_option("--limit", command.limit));
  const bool parks = std::ranges::any_of(settings.actions,
                                         [](const ActionOption& one) { return one.kind == ActionOption::Kind::park; });
  settings.how.park = TRY(settle_park(command.park, known, parks));
  settings.how.retries = settings.retries.most;
  settings.how.retry_after = settings.retries.after;
  if (!command.warn.empty()) settings.how.warn = TRY(duration_option("--warn", command.warn));
  if (!command.each.asked()) TRY(refuse_without_per(command.each, settings.actions));
  if (!command.each.asked() && settings.common.also.empty() && policy_uses(settings.common.policy, {Metric::job_util}))
    return fail("job_util is a signal of a job: give --per job, or --also PID; `lull run` knows it of its own job");
  return {};
}

int cancel() {
  bool done = false;
  for (const Reply& answer : ask_all(ControlOf::watch)) {
    fmt::print("lull watch {}: {}\n", answer.watcher, answer.line);
    done |= answer.line.starts_with("cancelled");
  }
  if (!done) return complain("nothing was cancelled", 1);
  return 0;
}

// All users can see all command lines.
void warn_of_shown_addresses(const Logger& logger, const std::vector<ActionOption>& actions) {
  for (const ActionOption& action : actions)
    if (action.notify.from == NotifyTo::From::written)
      logger.say(Level::warning, "notify",
                 action.text +
                     ": its address is on the command line, where every user can read it; notify=file:PATH or "
                     "notify=variable:NAME keeps it secret");
}

// On a terminal: the last line counts down.
bool is_live(const Logger& logger) {
  return ::isatty(STDERR_FILENO) == 1 && logger.format() == LogFormat::text && logger.wants(Level::note) &&
         !logger.wants(Level::debug);
}

int watch_all(WatchCommand& command, const Settings& known, Logger& logger, const SystemClock& clock) {
  log_remarks(logger, command.settings.common.policy.idle);
  if (!command.warn.empty() && !warns_of_any(command.settings.actions))
    logger.say(
        Level::warning, "warn",
        "--warn: no user is warned before " + to_text(command.settings.actions) + ", only before shutdown and reboot");
  const auto console = watch_console(logger, clock, is_live(logger), command.settings,
                                     rule_text(known, command.watch.idle, command.settings.common.policy.idle));
  return on_machine(
      clock, [&](Machine& machine) { return WatchSession(std::move(command.settings), machine, *console).run(); });
}

// The first of the programs that is not there.
std::string missing_for_slurm(const EachSettings& settings, bool fleet) {
  if (!settings.slurm || (settings.dry_run && !fleet)) return {};
  std::vector<std::string> programs = {"squeue", "scontrol", "scancel", "srun", "runuser"};
  if (fleet) programs = {"squeue", "scontrol", "scancel", "sinfo", "curl", "env"};
  for (const std::string& program : programs)
    if (!is_executable(program)) return program;
  return {};
}

Result<FleetSettings> settle_fleet(const WatchCommand& command, EachSettings each) {
  FleetSettings settings{.each = std::move(each), .query = {}, .labels = {}, .same_order = command.slurm_order};
  settings.query.url = TRY(trace::url_of_prometheus(command.from));
  settings.query.match = command.match;
  settings.query.token_file = command.token_file;
  auto labels = trace::parse_columns(command.labels);
  if (!labels) return std::unexpected(std::move(labels).error().during("--labels"));
  for (trace::ColumnChoice& label : *labels) label.option = "--labels";
  settings.labels = *std::move(labels);
  TRY(check_fleet(settings));
  return settings;
}

int watch_each(WatchCommand& command, const Settings& known, Logger& logger, const SystemClock& clock,
               bool given_idle) {
  auto settings = settle_each(command.each, command.settings, given_idle, known);
  if (!settings) return complain("watch: " + settings.error().message(), kExitUsage);
  std::optional<FleetSettings> fleet;
  if (!command.from.empty()) {
    auto settled = settle_fleet(command, *settings);
    if (!settled) return complain("watch: " + settled.error().message(), kExitUsage);
    fleet = *std::move(settled);
  }
  if (const std::string program = missing_for_slurm(*settings, fleet.has_value()); !program.empty())
    return complain(fmt::format("watch: --slurm needs {}, which is not in PATH", program), kExitFailure);
  for (const EachStep& step : settings->steps) {
    log_remarks(logger, step.when);
    warn_of_shown_addresses(logger, step.actions);
  }
  const auto console =
      watch_console(logger, clock, is_live(logger) && !fleet, fleet ? start_line(*fleet) : start_line(*settings));
  if (fleet)
    return on_machine(clock,
                      [&](Machine& machine) { return FleetSession(*std::move(fleet), machine, *console).run(); });
  return on_machine(clock,
                    [&](Machine& machine) { return EachSession(*std::move(settings), machine, *console).run(); });
}

}  // namespace

int watch_command(int argc, char** argv) {
  CommandLine line(kWatchAbout, "lull watch");
  line.footer(kWatchMore);
  WatchCommand command;
  const auto loaded = Settings::load();
  const Settings known = loaded ? *loaded : Settings();
  command.watch.idle = known.text(Setting::idle);
  command.signal = known.text(Setting::signal);
  command.grace = known.text(Setting::grace);
  command.each.keep_at_most = known.text(Setting::keep_at_most);
  command.watch.every = "5s";
  const CommandLine::Option idle = describe_options(line, command, known);
  if (const auto status = line.parse(argc, argv)) return *status;
  if (command.cancel) return cancel();
  if (command.slurm_option->given()) command.each.slurm = command.slurm;
  if (command.from.empty() && (!(command.match + command.labels + command.token_file).empty() || command.slurm_order))
    return complain("watch: --match, --labels, --token-file and --slurm-order are about --from prometheus:URL",
                    kExitUsage);
  if (!command.from.empty() && !command.each.slurm)
    return complain("watch: --from prometheus:URL needs --per job --slurm: Slurm says who has which GPU", kExitUsage);
  if (!command.from.empty() && !command.settings.evidence.empty())
    return complain("watch: --evidence is about processes of this machine: leave it out with --from", kExitUsage);
  if (!command.from.empty() && !command.every->given()) command.watch.every = "30s";
  if (!loaded) return complain(loaded.error().message(), kExitUsage);
  if (const auto settled = settle(command, known, idle.given()); !settled)
    return complain("watch: " + settled.error().message(), kExitUsage);

  const SystemClock clock;
  Logger logger = make_logger(command.watch.console, clock);
  for (const std::string& note : known.notes()) logger.say(Level::warning, "settings", note);
  warn_of_shown_addresses(logger, command.settings.actions);
  return command.each.asked() ? watch_each(command, known, logger, clock, idle.given() || !command.actions.empty())
                              : watch_all(command, known, logger, clock);
}

}  // namespace lull
