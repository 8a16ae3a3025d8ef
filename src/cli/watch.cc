// `lull watch`: watch the GPUs, act when a rule fires.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/option_value.h"
#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/watch_options.h"
#include "session/control.h"
#include "session/each_words.h"
#include "session/machine.h"
#include "session/voices.h"
#include "session/watch_session.h"
#include "view/screen.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr const char* kAbout =
    "Watches the GPUs and acts, once, when the rule fires; with --per, on each GPU or job by itself, again\n"
    "and again. A value that cannot be read is never taken for idle. With --also it judges that work: the\n"
    "GPUs on which it has a context, its cpu, io and quiet.\n";
constexpr const char* kMore =
    "Actions, done in the order given:\n"
    "  exit[=STATUS]      end watching, with this status (must be the last; default 0)\n"
    "  kill=PID           end a process and its children: --signal, then after --grace SIGKILL\n"
    "  kill=PGID:N        end a process group\n"
    "  kill=parent        end the process that started lull\n"
    "  kill=container     end every process of the container that lull is in\n"
    "  kill=holders, end  with --per: end the processes that hold the GPU\n"
    "  exec=CMD           run CMD with sh -c, the facts in LULL_* variables and as JSON on its stdin\n"
    "  shutdown, reboot   this machine; --warn 2m tells its users first\n"
    "  determined         end the Determined task that lull is in\n"
    "  notify[=WHERE]     tell Slack, Discord, Teams, ntfy or any web hook; WHERE is file:PATH or variable:NAME with "
    "the address, also as slack:file:PATH and so on (default: as `lull config` says)\n\n"
    "A server waits for its users: give it 2h and more, --idle 'util < 1 for 2h'.\n\n"
    "Exit status: 0 done; STATUS of exit=; 1 what --also names has ended; 2 the command line was wrong;\n"
    "125 an action failed or lull could not; 128+N signal N.\n\n"
    "Examples:\n"
    "  lull watch --arm 'util > 50 for 1m' --idle 'util < 1 for 30m' --do shutdown --warn 5m\n"
    "  lull watch --do notify=file:/etc/lull/slack --do kill=parent\n"
    "  lull watch --per job --rung 'util < 1 for 2h: notify' --rung 'util < 1 for 4h: end' --except-user root\n"
    "  lull watch --also 4711 --do kill=4711\n"
    "  lull watch --cancel\n";

struct WatchCommand {
  WatchSettings settings;
  WatchWords watch;
  std::vector<std::string> actions;
  EachWords each;
  std::string warn;
  std::string signal;
  std::string grace;
  std::string retry_after = "10s";
  std::string limit = "30s";
  bool cancel = false;
};

void add_each_options(CommandLine& line, EachWords& options, const Settings& known) {
  line.option("--per", options.per,
              "judge and act on each GPU, or each job that has one, by itself (default: all GPUs as one)")
      .value("gpu|job");
  line.each(
          "--rung", options.rungs,
          "with --per: a step of a ladder, 'RULE: ACTION'; several times, in place of --idle and --do (default: none)")
      .value("RULE: ACTION");
  line.each("--except-user", options.except_users,
            fmt::format("with --per: leave these users' processes alone (default: {})",
                        known.text(Setting::except_users).empty() ? "none" : known.text(Setting::except_users)))
      .value("USER,…");
  line.each("--only-user", options.only_users, "with --per: act on these users' processes only (default: everybody's)")
      .value("USER,…");
  line.option("--hours", options.hours,
              "with --per: act only in these hours of the day, such as 20-08 (default: always)")
      .value("SPAN,…");
  line.option("--keep-at-most", options.keep_at_most, "with --per: the most time that `lull keep` can get")
      .value("TIME");
}

// The option that says which rule.
CommandLine::Option describe_options(CommandLine& line, WatchCommand& command, const Settings& known) {
  line.each("--do", command.actions, "what to do when the rule fires, see below; may be given several times (required)")
      .value("ACTION");
  const CommandLine::Option idle = add_watch_options(line, command.watch, known, "all");
  add_each_options(line, command.each, known);
  line.flag("--repeat", command.settings.repeat, "go on watching after it was done; without --per, lull ends then");
  line.option("--warn", command.warn,
              "tell everybody logged in this long before a shutdown or reboot (default: nobody is told)")
      .value("TIME");
  line.flag("--cancel", command.cancel, "call off what a running `lull watch` is about to do");
  line.option("--retry", command.settings.retries.most, "how often a failed action is tried again").value("N");
  line.option("--retry-after", command.retry_after, "wait before another try").value("TIME");
  line.option("--limit", command.limit, "how long the command of an action may take").value("TIME");
  line.option("--signal", command.signal, "the signal that kill= sends first").value("NAME");
  line.option("--grace", command.grace, "how long it then waits before SIGKILL").value("TIME");
  line.flag("--dry-run", command.settings.common.dry_run,
            "only say what would be done, each time, and watch on until Ctrl-C");
  line.flag("--require-gpu", command.settings.common.require_gpu, "refuse to watch if no GPU can be read (125)");
  return idle;
}

Result<> settle(WatchCommand& command, const Settings& known) {
  WatchSettings& settings = command.settings;
  TRY(settle_watch(command.watch, known, settings.common));
  TRY(duration_option("--keep-at-most", command.each.keep_at_most));  // a mistake is one also without --per
  settings.common.policy.rearm = settings.repeat && settings.common.policy.arm.has_value();
  if (command.actions.empty() && command.each.rungs.empty())
    return fail("--do says what to do; for example --do shutdown");
  for (const std::string& text : command.actions) {
    auto action = settle_action(text, known);
    if (!action) return std::unexpected(std::move(action).error().during("--do"));
    settings.actions.push_back(*std::move(action));
  }
  for (std::size_t i = 0; i + 1 < settings.actions.size(); ++i)
    if (settings.actions[i].kind == ActionWord::Kind::exit) return fail("--do exit: nothing can come after it");
  if (settings.repeat && !settings.actions.empty() && settings.actions.back().kind == ActionWord::Kind::exit)
    return fail("--repeat and --do exit contradict each other");
  settings.how.ending.signal = TRY(signal_option("--signal", command.signal));
  settings.how.ending.grace = TRY(duration_option("--grace", command.grace));
  settings.retries.after = TRY(duration_option("--retry-after", command.retry_after));
  settings.how.limit = TRY(limit_option("--limit", command.limit));
  settings.how.retries = settings.retries.most;
  settings.how.retry_after = settings.retries.after;
  if (!command.warn.empty()) settings.how.warn = TRY(duration_option("--warn", command.warn));
  if (!command.each.asked()) TRY(refuse_without_per(command.each, settings.actions));
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

// Everybody sees the command line of everybody.
void say_what_is_shown(const Sayer& sayer, const std::vector<ActionWord>& actions) {
  for (const ActionWord& action : actions)
    if (action.notify.from == NotifyTo::From::written)
      sayer.say(Level::warning, "notify",
                action.text +
                    ": its address is on the command line, where every user can read it; notify=file:PATH or "
                    "notify=variable:NAME keeps it secret");
}

// Somebody looks at it: the last line counts down.
bool is_live(const Sayer& sayer) {
  return ::isatty(STDERR_FILENO) == 1 && sayer.format() == LogFormat::text && sayer.wants(Level::note) &&
         !sayer.wants(Level::debug);
}

int watch_all(WatchCommand& command, const Settings& known, Sayer& sayer, const SystemClock& clock) {
  say_remarks(sayer, command.settings.common.policy.idle);
  if (!command.warn.empty() && !warns_of_any(command.settings.actions))
    sayer.say(
        Level::warning, "warn",
        "--warn: nobody is told before " + in_words(command.settings.actions) + ", only before shutdown and reboot");
  const auto voice = watch_voice(sayer, clock, is_live(sayer), command.settings,
                                 rule_in_words(known, command.watch.idle, command.settings.common.policy.idle));
  return on_machine(clock,
                    [&](Machine& machine) { return WatchSession(std::move(command.settings), machine, *voice).run(); });
}

int watch_each(WatchCommand& command, const Settings& known, Sayer& sayer, const SystemClock& clock, bool given_idle) {
  auto settings = settle_each(command.each, command.settings, given_idle, known);
  if (!settings) return complain("watch: " + settings.error().message(), kExitUsage);
  for (const EachRung& rung : settings->rungs) {
    say_remarks(sayer, rung.when);
    say_what_is_shown(sayer, rung.actions);
  }
  const auto voice = watch_voice(sayer, clock, is_live(sayer), start_line(*settings));
  return on_machine(clock, [&](Machine& machine) { return EachSession(*std::move(settings), machine, *voice).run(); });
}

}  // namespace

int watch_command(int argc, char** argv) {
  CommandLine line(kAbout, "lull watch");
  line.footer(kMore);
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
  if (!loaded) return complain(loaded.error().message(), kExitUsage);
  if (const auto settled = settle(command, known); !settled)
    return complain("watch: " + settled.error().message(), kExitUsage);

  const SystemClock clock;
  Sayer sayer = make_sayer(command.watch.voice, clock);
  for (const std::string& note : known.notes()) sayer.say(Level::warning, "settings", note);
  say_what_is_shown(sayer, command.settings.actions);
  return command.each.asked() ? watch_each(command, known, sayer, clock, idle.given() || !command.actions.empty())
                              : watch_all(command, known, sayer, clock);
}

}  // namespace lull
