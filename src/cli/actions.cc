#include "cli/actions.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "compat/determined.h"

namespace lull {
namespace {

constexpr std::array<std::string_view, 7> kNames = {"exit",   "kill",       "exec",  "shutdown",
                                                    "reboot", "determined", "notify"};

// What can be said of `kill=…` before anybody looks who that is.
Result<> check_target(const std::string& what) {
  if (what == "container" || what == "parent" || to_pid(what)) return {};
  if (!what.starts_with("PGID:"))
    return fail("kill= needs a PID, PGID:N, parent or container, not '" + printable(what) + "'");
  if (to_pid(what.substr(5))) return {};
  return fail("kill=PGID:N needs the number of a process group, not '" + printable(what.substr(5)) + "'");
}

Result<> check_address(const std::string& url) {
  if (url.starts_with("http://") || url.starts_with("https://")) return {};
  return fail("notify= needs an http:// or https:// address");
}

Result<Tree> tree_for(ReadyAction& ready) {
  const std::string& what = ready.action.argument;
  if (what == "container") return Tree::of_container();
  if (what.starts_with("PGID:")) {
    return Tree::of_group(to_pid(what.substr(5)).value_or(0));
  }
  const pid_t pid = what == "parent" ? ::getppid() : to_pid(what).value_or(0);
  if (pid == ::getpid()) return fail("kill=" + what + " is lull itself");
  if (what == "parent" && pid <= 1) return fail("kill=parent: whoever started us has ended");
  ready.target = TRY(Process::open(pid));
  if (const auto may = ready.target.signal(0); !may && may.error().errno_value == EPERM)
    return fail(EPERM, fmt::format("process {} is not ours to end", pid));
  return Tree::of_process(ready.target);
}

Result<std::vector<std::string>> determined_command() {
  const auto task = determined_task([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  });
  if (!task)
    return fail(
        "this is no Determined task (DET_TASK_TYPE and DET_TASK_ID are not set); say what to end, for example "
        "kill=parent");
  if (!is_executable("det")) return fail("`det` is not in PATH: a Determined task cannot be ended");
  return determined_kill(*task);
}

Result<std::vector<std::string>> notify_command(const std::string& url) {
  if (!is_executable("curl")) return fail("notify= needs curl, which is not in PATH");
  // curl is what every machine has that can speak https; it costs nothing until it is needed.
  return std::vector<std::string>{"curl",
                                  "--fail",
                                  "--silent",
                                  "--show-error",
                                  "--proto",
                                  "=http,https",
                                  "--header",
                                  "Content-Type: application/json",
                                  "--data-binary",
                                  "@-",
                                  "--max-time",
                                  "5",
                                  "--retry",
                                  "5",
                                  "--retry-delay",
                                  "1",
                                  "--retry-connrefused",
                                  "--output",
                                  "/dev/null",
                                  "--url",
                                  url};
}

constexpr Duration kNotifyLimit = std::chrono::seconds(10);

}  // namespace

std::string left_in_words(const std::vector<ProcessEntry>& left) {
  std::string stuck;
  std::string refused;
  for (const ProcessEntry& one : left) {
    const auto process = Process::open(one);
    const auto reached = process ? process->signal(0) : Result<>();
    const bool ours = reached || reached.error().errno_value != EPERM;
    std::string& list = ours ? stuck : refused;
    list += (list.empty() ? "" : " ") + std::to_string(one.pid);
  }
  if (!stuck.empty()) stuck += " (stuck in the kernel)";
  if (!refused.empty()) refused += " (not ours to end)";
  return stuck + (stuck.empty() || refused.empty() ? "" : ", ") + refused;
}

std::string trouble_of(const Ending& ending) {
  switch (ending.state()) {
    case Ending::State::stuck: return "still there: " + left_in_words(ending.left());
    case Ending::State::unproven:
      return "it is gone, but whether all its processes are cannot be told: /proc cannot be read";
    default: return "";
  }
}

Result<Action> parse_action(std::string_view text) {
  Action action;
  action.text = text;
  const auto equals = text.find('=');
  const std::string_view name = text.substr(0, equals);
  const bool has_argument = equals != std::string_view::npos;
  if (has_argument) action.argument = text.substr(equals + 1);
  const auto needs = [&](bool wanted, const char* example) -> Result<Action> {
    if (wanted == (has_argument && !action.argument.empty())) return action;
    return fail(fmt::format("{}: {}, as in {}", name, wanted ? "something is missing" : "takes nothing", example));
  };
  if (name == "exit") {
    action.kind = Action::Kind::exit;
    if (!has_argument) return action;
    const auto status = to_unsigned(action.argument);
    if (!status || *status > 255)
      return fail("exit=STATUS is a number from 0 to 255, not '" + printable(action.argument) + "'");
    action.status = static_cast<int>(*status);
    return action;
  }
  if (name == "kill") {
    action.kind = Action::Kind::kill;
    TRY(needs(true, "kill=1234"));
    TRY(check_target(action.argument));
    return action;
  }
  if (name == "exec") return action.kind = Action::Kind::exec, needs(true, "exec='mail -s idle me'");
  if (name == "notify") {
    action.kind = Action::Kind::notify;
    TRY(needs(true, "notify=https://example.org/hook"));
    TRY(check_address(action.argument));
    return action;
  }
  if (name == "determined") return action.kind = Action::Kind::determined, needs(false, "--do determined");
  if (name == "shutdown" || name == "reboot") {
    action.kind = Action::Kind::power;
    action.power = name == "reboot" ? Power::reboot : Power::off;
    return needs(false, "--do shutdown");
  }
  const std::string hint = did_you_mean(name, kNames);
  return fail(
      fmt::format("there is no action '{}'{}", printable(name),
                  hint.empty() ? "; there are exit, kill=, exec=, shutdown, reboot, determined, notify=" : hint));
}

Result<ReadyAction> prepare_action(Action action, const InheritedSignals* signals) {
  ReadyAction ready;
  ready.action = std::move(action);
  switch (ready.action.kind) {
    case Action::Kind::exit: break;
    case Action::Kind::kill: ready.tree = std::make_shared<Tree>(TRY(tree_for(ready))); break;
    case Action::Kind::exec: ready.command = {"/bin/sh", "-c", ready.action.argument}; break;
    case Action::Kind::power: ready.command = TRY(find_power_command(ready.action.power, signals)); break;
    case Action::Kind::determined: ready.command = TRY(determined_command()); break;
    case Action::Kind::notify: ready.command = TRY(notify_command(ready.action.argument)); break;
  }
  return ready;
}

ActionRun::ActionRun(Loop& loop, Helpers& helpers, std::vector<ReadyAction>& actions, ActionOptions options,
                     const InheritedSignals* signals, FiringFacts facts, Calls calls)
    : loop_(loop),
      helpers_(helpers),
      actions_(actions),
      options_(std::move(options)),
      signals_(signals),
      facts_(std::move(facts)),
      calls_(std::move(calls)) {}

ActionRun::~ActionRun() {
  *here_ = false;
  if (timer_) loop_.cancel(*timer_);
}

void ActionRun::later(Duration delay, void (ActionRun::*then)()) {
  timer_ = loop_.in(delay, [this, then] {
    timer_.reset();
    (this->*then)();
  });
}

void ActionRun::finish(bool called_off) {
  if (over_) return;
  over_ = true;
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
  powers_at_.reset();
  calls_.done(all_worked_, called_off);
}

void ActionRun::next() {
  tries_ = 0;
  if (at_ >= actions_.size() || actions_[at_].action.kind == Action::Kind::exit) return finish(false);
  const ReadyAction& ready = actions_[at_];
  if (ready.action.kind == Action::Kind::power && options_.warn) return warn_then_run();
  attempt();
}

void ActionRun::warn_then_run() {
  const std::string what = actions_[at_].action.power == Power::off ? "off" : "down for a reboot";
  calls_.fresh = false;
  powers_at_ = loop_.now() + *options_.warn;
  const std::string message = fmt::format("lull: this machine goes {} in {}: {}. `lull watch --cancel` keeps it up.",
                                          what, format_duration(*options_.warn), headline(facts_.why));
  const std::size_t told = tell_terminals(message, options_.root);
  calls_.say(Level::important, "warn",
             fmt::format("{} in {}; {} terminal{} told; `lull watch --cancel` calls it off", actions_[at_].action.text,
                         format_duration(*options_.warn), told, told == 1 ? "" : "s"));
  later(*options_.warn, &ActionRun::attempt);
}

void ActionRun::look() {
  if (over_ || running_ || confirming_ || calls_.still_wanted()) return;
  call_off();
}

void ActionRun::call_off() {
  calls_.say(Level::note, "called-off", "the GPUs are no longer idle (or cannot be read): called off");
  finish(true);
}

bool ActionRun::cancel(const std::string& who) {
  if (over_ || running_) return false;
  calls_.say(Level::important, "cancelled", "cancelled by " + who);
  finish(true);
  return true;
}

// A hook, a warning, an action before this one, a pause of ours or of the machine: whatever came between the firing and
// now, a new sample has to say yes.
void ActionRun::attempt() {
  if (std::exchange(calls_.fresh, false)) return attempt_now();
  confirming_ = true;
  calls_.confirm([this, here = here_] {
    if (!*here) return;
    confirming_ = false;
    if (over_) return;
    if (calls_.still_wanted())
      attempt_now();
    else
      call_off();
  });
}

void ActionRun::attempt_now() {
  powers_at_.reset();
  const ReadyAction& ready = actions_[at_];
  running_ = true;
  ++tries_;
  calls_.say(
      Level::note, "act",
      fmt::format("now: {}{}", printable(ready.action.text), tries_ > 1 ? fmt::format(" (try {})", tries_) : ""));
  switch (ready.action.kind) {
    case Action::Kind::kill: return attempt_kill();
    case Action::Kind::notify:
      return run_command(ready, std::min(options_.limit, kNotifyLimit), facts_json(facts_) + "\n");
    case Action::Kind::exec: return run_command(ready, options_.limit, facts_json(facts_) + "\n");
    default: return run_command(ready, options_.limit, "");
  }
}

void ActionRun::attempt_kill() {
  ending_.emplace(*actions_[at_].tree, actions_[at_].target, options_.ending);
  step_kill();
}

void ActionRun::step_kill() {
  if (const auto again = ending_->step(loop_.now())) return later(*again - loop_.now(), &ActionRun::step_kill);
  const std::string trouble = trouble_of(*ending_);
  outcome(trouble.empty(), trouble);
}

void ActionRun::run_command(const ReadyAction& ready, Duration limit, std::string input) {
  helpers_.run({.arguments = ready.command,
                .environment = facts_environment(facts_),
                .input = std::move(input),
                .limit = limit,
                .signals = signals_},
               [this, here = here_](const HelperResult& result) {
                 if (*here) outcome(result.ok(), result.trouble);
               });
}

void ActionRun::outcome(bool ok, const std::string& trouble) {
  running_ = false;
  const ReadyAction& ready = actions_[at_];
  if (ok) {
    ++at_;
    return next();
  }
  // A notification is retried by curl within its own limit: nothing waits longer for it.
  const bool again = tries_ <= options_.retries && ready.action.kind != Action::Kind::notify;
  calls_.say(Level::warning, "failed",
             fmt::format("{}: {}{}", printable(ready.action.text), printable(trouble),
                         again ? fmt::format("; again in {}", format_duration(options_.retry_after)) : "; given up"));
  if (again) return later(options_.retry_after, &ActionRun::attempt);
  all_worked_ = false;
  ++at_;
  next();
}

}  // namespace lull
