#include "cli/watch_session.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "cli/command.h"

namespace lull {
namespace {

constexpr int kNothingLeft = 1;  // exit status: what was to be watched has ended, and no rule has fired

}  // namespace

WatchSession::WatchSession(WatchSettings settings, WatchVoice& voice, const Clock& clock)
    : settings_(std::move(settings)), voice_(voice), clock_(clock) {
  wants_work_ = !settings_.also.empty() && policy_uses(settings_.policy, Of::job);
  work_sensor_ = JobSensor({}, policy_uses(settings_.policy, {Metric::io}));
}

Result<> WatchSession::prepare() {
  guard_standard_descriptors();
  signals_ = InheritedSignals::take();
  loop_ = TRY(Loop::create(clock_));
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set, number);
  TRY(loop_->on_signals(set, [this](const signalfd_siginfo& info) { on_signal(info); }));
  Children::become_subreaper();  // what a hook leaves behind comes to us, and goes when its time is up
  helpers_ = std::make_unique<Helpers>(*loop_, children_);
  for (const Action& action : settings_.actions) {
    auto ready = prepare_action(action, &signals_);
    if (!ready) return std::unexpected(std::move(ready).error());
    actions_.push_back(*std::move(ready));
  }
  feed_.emplace(*loop_, FeedOptions{.policy = settings_.policy,
                                    .every = settings_.every,
                                    .gpus = settings_.gpus,
                                    .of_job = settings_.of_job,
                                    .is_ours = settings_.also.empty() ? JobContexts::IsOurs() : [this](pid_t pid) {
                                      return settings_.also.contains(pid);
                                    }});
  feed_->on_tick = [this](std::uint64_t tick) { voice_.ticked(tick); };
  feed_->on_sample = [this](Snapshot& snapshot, const Scope& scope) { on_sample(snapshot, scope); };
  feed_->on_note = [this](std::string_view event, const std::string& text) { voice_.note(Level::note, event, text); };
  return {};
}

int WatchSession::run() {
  if (const auto ready = prepare(); !ready) return complain(ready.error().message());
  if (settings_.require_gpu || !settings_.gpus.empty()) {
    const auto none = feed_->look();  // nothing waits for us but us
    if (none && settings_.require_gpu) {
      voice_.note(Level::important, "no-gpu", "no GPU can be read: " + *none);
      return kExitFailure;
    }
    if (!feed_->trouble().empty()) {
      voice_.note(Level::important, "gpus", feed_->trouble());
      return kExitUsage;
    }
  }
  // Without it everything works but --cancel.
  if (auto control = Control::listen(*loop_, [this](const std::string& who) { return on_cancel(who); })) {
    control_ = *std::move(control);
  } else {
    voice_.note(Level::warning, "control", control.error().message());
  }
  watcher_.emplace(WatcherOptions{.policy = settings_.policy,
                                  .judge = {.interval = settings_.every, .missing = settings_.missing},
                                  .delay = settings_.delay},
                   clock_.now());
  voice_.started(settings_);
  for (const std::string& text : settings_.also.nobody_in())
    voice_.note(Level::warning, "also", "--also " + printable(text) + ": nobody is there yet");
  feed_->begin();
  const auto ran = loop_->run();
  acting_.reset();
  helpers_.reset();
  return ran ? status_ : complain(ran.error().message());
}

void WatchSession::on_signal(const signalfd_siginfo& info) {
  if (info.ssi_signo == SIGCHLD) return children_.sweep();
  if (info.ssi_signo == SIGUSR1) return feed_->let_go();
  status_ = 128 + static_cast<int>(info.ssi_signo);
  loop_->stop();
}

void WatchSession::say_about_scope() {
  if (feed_->trouble() != scope_trouble_) {
    scope_trouble_ = feed_->trouble();
    if (!scope_trouble_.empty()) voice_.note(Level::warning, "scope", scope_trouble_);
  }
  for (const std::string& text : feed_->take_notes()) voice_.note(Level::warning, "scope", text);
}

// What --also names is a job that we did not start: it is looked at as one.
void WatchSession::sense_work(Snapshot& snapshot) {
  if (settings_.also.empty()) return;
  for (const std::string& text : settings_.also.take_ended())
    voice_.note(Level::note, "also", "--also " + printable(text) + ": it has ended, with all that it started");
  const auto stopped = feed_->stopped(true);
  if (stopped && !std::exchange(stop_said_, true))
    voice_.note(Level::note, "stopped",
                fmt::format("process {} ({}) is stopped and has a GPU context: not judged until it goes on",
                            stopped->pid, printable(stopped->name)));
  const bool frozen = !stopped && feed_->frozen();
  if (frozen && !std::exchange(freeze_said_, true))
    voice_.note(Level::note, "frozen", "the work's cgroup is frozen: not judged until it goes on");
  if (std::exchange(stopped_, stopped || frozen) != stopped_) watcher_->job_stopped(stopped_);
  if (!wants_work_) return;
  const std::vector<ProcessEntry> members = settings_.also.members();
  const JobUsage usage = work_sensor_.sample({}, snapshot.at, {.outside = members});
  fill_job(snapshot, usage);
  if (!usage.uncounted_socket.empty() && !std::exchange(uncounted_said_, true))
    voice_.note(Level::warning, "io",
                "`io` is not known: " + usage.uncounted_socket + ", and nobody counts the bytes of that");
}

void WatchSession::on_sample(Snapshot& snapshot, const Scope& scope) {
  // Who loses its parent before the rule fires is known from here on.
  for (const ReadyAction& action : actions_)
    if (action.tree) (void)action.tree->members();
  say_about_scope();
  sense_work(snapshot);
  const std::vector<Intent> intents = watcher_->observe(snapshot, scope);
  if (acting_) acting_->look();
  voice_.sampled(snapshot, *watcher_, acting_ ? acting_->powers_at() : std::nullopt);
  for (const Intent& intent : intents) {
    if (const Say* say = std::get_if<Say>(&intent)) voice_.said(*say);
    if (const Fire* fired = std::get_if<Fire>(&intent)) fire(*fired);
  }
  if (settings_.also.over() && !acting_) {
    voice_.note(Level::important, "over", "nothing that --also names is left to watch; nothing was done");
    status_ = kNothingLeft;
    loop_->stop();
  }
}

std::string WatchSession::actions_in_words() const {
  std::string words;
  for (const Action& action : settings_.actions) words += (words.empty() ? "" : ", then ") + printable(action.text);
  return words;
}

bool WatchSession::is_fresh() const { return clock_.now() - feed_->newest().at <= longest_gap(settings_.every); }

void WatchSession::fire(const Fire& fire) {
  if (acting_) return;
  if (!feed_->lists_may_be_old()) return act_on(fire);
  feed_->confirm([this, fire] {
    if (acting_) return;
    if (is_fresh() && watcher_->still_holds()) return act_on(fire);
    watcher_->acted();
  });
}

void WatchSession::act_on(const Fire& fire) {
  FiringFacts facts;
  facts.event = "idle";
  facts.why = fire.why;
  facts.at = clock_.wall();
  facts.action = actions_in_words();
  facts.snapshot = feed_->newest();
  facts.scope = watcher_->scope();
  voice_.firing(facts, settings_.dry_run);
  if (settings_.dry_run) return watcher_->acted();
  acting_ = std::make_unique<ActionRun>(
      *loop_, *helpers_, actions_, settings_.how, &signals_, std::move(facts),
      ActionRun::Calls{.say = [this](Level level, std::string_view event,
                                     const std::string& text) { voice_.note(level, event, text); },
                       .still_wanted = [this] { return is_fresh() && watcher_->still_holds(); },
                       .confirm = [this](std::function<void()> then) { feed_->confirm(std::move(then)); },
                       .fresh = is_fresh(),
                       .done = [this](bool all, bool called_off) { acted(all, called_off); }});
  acting_->start();
}

void WatchSession::acted(bool all, bool called_off) {
  // Called from inside the run that ends here: it goes when the stack is empty.
  loop_->in(Duration::zero(), [this] { acting_.reset(); });
  watcher_->acted();
  if (called_off) return;
  if (settings_.repeat) {
    voice_.note(Level::note, "again", all ? "done; watching again" : "not all of it was done; watching again");
    return;
  }
  status_ = all ? 0 : kExitFailure;
  if (!settings_.actions.empty() && settings_.actions.back().kind == Action::Kind::exit && all)
    status_ = settings_.actions.back().status;
  loop_->stop();
}

std::string WatchSession::on_cancel(const std::string& who) {
  if (acting_ && acting_->cancel(who)) return "cancelled: " + actions_in_words();
  return "nothing to cancel: " + std::string(acting_ ? "it is being done already" : "its rule has not fired");
}

}  // namespace lull
