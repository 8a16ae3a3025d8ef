#include "session/watch_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/exit_status.h"
#include "base/text.h"
#include "base/units.h"
#include "view/events.h"

namespace lull {
namespace {

constexpr int kNothingLeft = 1;  // exit status: what was to be watched has ended, and no rule has fired

}  // namespace

WatchSession::WatchSession(WatchSettings settings, World& world, Sink& sink)
    : Session(std::move(settings.common), {"gpus"}, world, sink),
      settings_(std::move(settings)),
      work_sensor_({}, policy_uses(common_.policy, {Metric::io, Metric::quiet})) {
  rule_wants_work_ = rule_wants_work_ && !common_.also.empty();
}

Result<> WatchSession::prepare() {
  TRY(world_.listen({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD},
                    [this](const signalfd_siginfo& info) { on_signal(info); }));
  if (!settings_.evidence.empty()) {
    TRY(during("--evidence", Evidence::prepare(settings_.evidence)));
    if (auto action = world_.evidence(settings_.evidence, recorder_)) actions_.push_back(std::move(action));
  }
  for (const ActionOption& word : settings_.actions) {
    if (word.kind == ActionOption::Kind::exit) exit_status_ = word.status;
    for (auto& action : world_.actions_of(word, settings_.how)) {
      TRY(action->prepare());
      actions_.push_back(std::move(action));
    }
  }
  make_feed(
      settings_.of_job, !settings_.evidence.empty(),
      common_.also.empty() ? JobGpus::IsOurs() : [this](pid_t pid) { return common_.also.contains(pid); });
  return {};
}

SessionEnd WatchSession::run() {
  if (const auto ready = prepare(); !ready) return {kExitFailure, ready.error().message()};
  if (const auto refused =
          refuse_without_gpus(*feed_, sink_, {.require_gpu = common_.require_gpu, .named = !common_.gpus.empty()}))
    return *refused;
  // Without it everything works but --cancel.
  if (settings_.controlled) {
    if (auto control =
            Control::listen(loop_, ControlOf::watch, [this](const std::string& who) { return on_cancel(who); }))
      control_ = *std::move(control);
    else
      sink_.note(Level::warning, "control", control.error().message());
  }
  begin_subject();
  sink_.started();
  warn_of_missing_also();
  feed_->begin();
  SessionEnd end = world_.run(end_);
  acting_.reset();
  actions_.clear();
  return end;
}

void WatchSession::on_signal(const signalfd_siginfo& info) {
  if (info.ssi_signo == SIGCHLD) {
    if (acting_) acting_->look();
    return;
  }
  if (info.ssi_signo == SIGUSR1) return feed_->release_driver();
  end(ended_by(static_cast<int>(info.ssi_signo)));
}

// What --also names is a job that we did not start: it is looked at as one.
void WatchSession::sense(const Snapshot& snapshot) {
  // Who loses its parent before the rule fires is known from here on.
  for (const auto& action : actions_)
    if (!acting_) action->look();
  if (!settings_.evidence.empty()) recorder_.add(snapshot, subject_.job, feed_->machine());
  if (common_.also.empty()) return;
  set_stopped(is_paused(true, {}, "the work", ""));
  // What there is to do by a rule that fires on this very sample is done first.
  loop_.in(Duration::zero(), [this] { end_with_the_work(); });
  if (!rule_wants_work_) return;
  const std::vector<ProcessEntry> members = common_.also.members();
  add_usage(work_sensor_.sample({}, snapshot.at, {.outside = members}));
}

void WatchSession::end_with_the_work() {
  if (!common_.also.over() || acting_ || loop_.stopped()) return;
  sink_.note(Level::important, "over", "nothing that --also names is left to watch; nothing was done");
  end({kNothingLeft});
}

// Those that evidence tells of: the work, or all who use these GPUs.
std::vector<MemberView> WatchSession::members() {
  if (!common_.also.empty()) return view_members(common_.also.members(), {}, 0, world_.root());
  std::vector<GpuProcess> all;
  for (const GpuUse& use : world_.users()->look(feed_->newest(), UserDetail::identity, true))
    if (std::ranges::any_of(judged().scope(), [&](const Device& gpu) { return use.device.is(gpu.id()); }))
      all.insert(all.end(), use.processes.begin(), use.processes.end());
  return view_processes(all, world_.root());
}

std::vector<pid_t> WatchSession::who_hangs() {
  std::vector<pid_t> pids;
  for (const MemberView& one : members()) pids.push_back(one.entry.pid);
  return pids;
}

void WatchSession::fired(const Fired& fire) {
  FiringFacts all = facts("idle", fire.why, to_text(settings_.actions));
  all.announced = notice_text(settings_.actions);
  all.would = would_text(settings_.actions);
  sink_.firing(all, common_.dry_run);
  if (settings_.evidence.empty() || common_.dry_run) log_hang();
  if (common_.dry_run) return engine_->outcome(subject_.id);
  if (!settings_.evidence.empty()) all.members = members();
  std::vector<Action*> actions;
  for (const auto& action : actions_) actions.push_back(action.get());
  act(std::move(actions), settings_.retries, std::move(all));
}

void WatchSession::tell(const ActionEvent& action_event) {
  // How a tree could not be ended is said by the action that failed.
  if (std::holds_alternative<TreeStuck>(action_event) || std::holds_alternative<TreeUnproven>(action_event)) return;
  // A shutdown with a warning is two actions: the second one says that it is done now.
  const auto* attempt = std::get_if<Attempted>(&action_event);
  if (attempt != nullptr && acting_ && acting_->waits_until()) return;
  if (attempt != nullptr && attempt->action == settings_.evidence) return;
  sink_.did(action_event);
  for (const ActionOption& word : settings_.actions)
    if (attempt != nullptr && word.kind == ActionOption::Kind::kill && word.text == attempt->action)
      sink_.note(Level::note, "end", printable(word.text) + ": " + to_text(settings_.how.ending));
}

void WatchSession::acted(bool all, bool called_off) {
  if (called_off) return;
  if (settings_.repeat) {
    sink_.note(Level::note, "again", all ? "done; watching again" : "not all of it was done; watching again");
    return;
  }
  end({all ? exit_status_.value_or(0) : kExitFailure});
}

// Before the rule has fired, what is called off is the countdown. False: it does not run.
bool WatchSession::restart_count(const std::string& who) {
  const SubjectState* judged = engine_ ? engine_->find(subject_.id) : nullptr;
  if (judged == nullptr || !judged->judging()) return false;
  const Verdict& verdict = judged->verdict();
  if (!verdict.armed || verdict.condition != Truth::yes) return false;
  if (verdict.truth == Truth::yes && !cancel_unconfirmed()) return false;
  engine_->stopped(subject_.id, subject_.stopped);  // as after a stop that is over: every streak begins anew
  sink_.note(Level::important, "cancelled", "cancelled by " + who + "; the count starts again");
  return true;
}

std::string WatchSession::on_cancel(const std::string& who) {
  if (acting_ && acting_->cancel(who)) return "cancelled: " + to_text(settings_.actions);
  if (!acting_ && restart_count(who)) return "cancelled: " + to_text(settings_.actions) + "; the count starts again";
  return "nothing to cancel: " + std::string(acting_ ? "it is being done already" : "its rule has not fired");
}

namespace {

using namespace std::chrono_literals;
constexpr Duration kFastest = 10ms;
constexpr Duration kSlowest = 24h;

}  // namespace

Result<> settle_watch(const WatchOptions& options, const Settings& known, SessionSettings& settings) {
  settings.signals = TRY(signals_with(known.signals(), options.signal_from));  // rules name them
  settings.policy.idle = TRY(known.idle_option("--idle", options.idle));
  if (!options.arm.empty()) settings.policy.arm = TRY(known.rule_option("--arm", options.arm));
  settings.every = TRY(duration_option("--every", options.every));
  if (settings.every < kFastest) return fail("--every: at least " + format_duration(kFastest));
  if (settings.every > kSlowest) return fail("--every: at most " + format_duration(kSlowest) + " would be right");
  settings.delay = TRY(duration_option("--delay", options.delay));
  settings.gpus = options.gpus;
  settings.missing = TRY(missing_option(options.missing));
  TRY(check(options.console));
  settings.also = TRY(Also::parse(options.also));
  return {};
}

std::string rule_text(const Settings& known, const std::string& given, const Rule& rule) {
  const Settings::NamedRule* named = known.find_rule(trim(given));
  if (named == nullptr) return to_text(rule);
  const bool built_in = !named->meaning.empty();
  return fmt::format("{} ({}{})", to_text(rule), named->name, built_in ? "" : ", " + named->value.from);
}

void log_remarks(const Logger& logger, const Rule& idle) {
  for (const std::string& remark : remarks(idle)) logger.say(Level::warning, "rule", "--idle: " + remark);
}

}  // namespace lull
