#include "session/session.h"

#include <fmt/format.h>

#include <csignal>
#include <utility>

#include "act/evidence.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

// A sample or two from having held for long enough. A rule that is as short as that asks for lists of processes as
// often as they may be had; what it fires on is confirmed.
bool is_near(const Verdict& verdict, Duration every) {
  const Span& needed = verdict.needed;
  const bool held = verdict.held >= needed.time && verdict.held_samples >= needed.samples;
  const bool soon = verdict.held + 2 * every >= needed.time && verdict.held_samples + 2 >= needed.samples;
  return verdict.held > Duration::zero() && soon && !held;
}

}  // namespace

std::string to_text(const Ending::Options& how) {
  if (how.signal == 0 || how.signal == SIGKILL) return "SIGKILL to its process tree";
  return fmt::format("{} to its process tree, SIGKILL to what is left after {}", signal_name(how.signal),
                     format_duration(how.grace));
}

Session::Session(SessionSettings settings, SubjectId subject, World& world, Sink& sink)
    : common_(std::move(settings)), world_(world), loop_(world.loop()), sink_(sink) {
  subject_.id = std::move(subject);
  rule_wants_work_ = common_.watch_work || policy_uses(common_.policy, {Metric::cpu, Metric::io, Metric::quiet});
}

void Session::make_feed(bool of_job, bool everything, JobGpus::IsOurs is_ours, bool job_is_new) {
  feed_.emplace(world_, FeedOptions{.policy = common_.policy,
                                    .every = common_.every,
                                    .gpus = common_.gpus,
                                    .gpus_option = common_.gpus_option,
                                    .absent_left_out = common_.absent_left_out,
                                    .of_job = of_job,
                                    .everything = everything,
                                    .warn_by = common_.warn_by,
                                    .signals = common_.signals,
                                    .all_signals = everything || common_.watch_work,
                                    .is_ours = std::move(is_ours),
                                    .job_is_new = job_is_new,
                                    .without_integrated = true,
                                    .all_without_context = common_.all_without_context});
  feed_->on_tick = [this](std::uint64_t tick) {
    if (wants_samples()) sink_.ticked(tick);
  };
  feed_->on_sample = [this](const Snapshot& snapshot, const Scope& scope) { on_sample(snapshot, scope); };
  feed_->on_note = [this](std::string_view event, const std::string& text) { sink_.note(Level::note, event, text); };
}

void Session::begin_subject() {
  const JudgeOptions how{.interval = common_.every, .missing = common_.missing, .had_samples = common_.first_may_fire};
  std::vector<Plan> plans = {plan_of(common_.policy, how, common_.delay, common_.max_time)};
  if (common_.warn_by) plans.push_back(plan_of({.idle = *common_.warn_by}, how, common_.delay));
  engine_.emplace(std::move(plans));
  subject_ = {.id = subject_.id, .scope = {}};
  confirming_first_ = not_confirmed_said_ = false;
  engine_->begin(subject_.id, world_.clock().now());
  set_time_limit();
}

void Session::warn_of_missing_also() {
  for (const std::string& text : common_.also.nobody_in())
    sink_.note(Level::warning, "also", "--also " + printable(text) + ": no such process yet");
}

void Session::set_time_limit() {
  time_limit_.cancel();
  if (const auto next = engine_->next_time())
    time_limit_.at(*next, [this] { handle(engine_->time_is(world_.clock().now())); });
}

void Session::log_scope_trouble() {
  feed_->log_scope_trouble(sink_);
  for (const std::string& text : common_.also.take_ended())
    sink_.note(Level::note, "also", "--also " + printable(text) + ": it has ended, with all that it started");
}

void Session::set_stopped(bool stopped) {
  if (stopped == subject_.stopped) return;
  subject_.stopped = stopped;
  if (!stopped) went_on_ = world_.clock().now();
  if (engine_) engine_->stopped(subject_.id, stopped);
}

bool Session::is_paused(bool traced, std::vector<pid_t> others, std::string_view whose, std::string_view of) {
  const auto stopped = feed_->stopped(traced);
  const bool frozen = !stopped && feed_->frozen(std::move(others));
  const bool stop_known = std::exchange(stop_said_, stopped.has_value());
  const bool freeze_known = std::exchange(freeze_said_, frozen);
  if (stopped && !stop_known)
    sink_.note(Level::note, "stopped",
               fmt::format("process {} ({}){} is stopped and has a GPU context: not judged until it goes on",
                           stopped->pid, printable(stopped->name), of));
  if (frozen && !freeze_known)
    sink_.note(Level::note, "frozen", fmt::format("{}'s cgroup is frozen: not judged until it goes on", whose));
  return stopped || frozen;
}

void Session::add_usage(const JobUsage& usage) {
  add_to(subject_.job, usage);
  // Once: who it is changes with every process that comes and goes.
  if (!usage.uncounted.empty() && !std::exchange(uncounted_said_, true))
    sink_.note(Level::warning, "io",
               "`io` is not known: " + usage.uncounted + ", whose bytes the kernel does not count");
}

void Session::on_sample(const Snapshot& snapshot, const Scope& scope) {
  feed_->add_share(subject_.job);
  if (!wants_samples() && !needs_more_samples()) return sense(snapshot);
  if (wants_samples() || feed_->confirming()) log_scope_trouble();
  subject_.job.miss(Metric::beat, Absence::no_beat);  // unless the session knows it
  sense(snapshot);
  subject_.scope = scope;
  // What was read before it went on is of the time in which it stood still, whenever it is handed over.
  const bool stopped = std::exchange(subject_.stopped, subject_.stopped || snapshot.at < went_on_);
  const std::span<const Event> events = engine_->observe(snapshot, {&subject_, 1}, feed_->machine(), feed_->in_turn());
  subject_.stopped = stopped;
  if (acting_) acting_->judged();
  if (!wants_samples()) return;  // before SIGKILL: what else it shows matters only if that is called off
  feed_->may_fire_next(is_near(judged().verdict(), common_.every));
  if (judged().verdict().truth != Truth::yes) not_confirmed_said_ = false;
  // A confirmation, out of turn, is not a sample of the log.
  if (feed_->in_turn())
    sink_.sampled({snapshot, subject_, feed_->machine(), judged(), confirming_first_},
                  acting_ ? acting_->waits_until() : std::nullopt);
  handle(events);
}

void Session::handle(std::span<const Event> events) {
  // What a handler does may ask the engine anew.
  const std::vector<Event> all(events.begin(), events.end());
  for (const Event& event : all) {
    if (event.plan != 0) {
      warn(event);
    } else if (const Fired* fire = std::get_if<Fired>(&event.what)) {
      confirm_first(*fire);
    } else if (const TimeUp* up = std::get_if<TimeUp>(&event.what)) {
      time_is_up(*up);
    } else if (std::holds_alternative<CalledOff>(event.what)) {
      first_called_off_ = true;
      if (acting_) acting_->call_off();
    } else {
      sink_.happened(event);
    }
  }
}

// The mean of the time before the firing says nothing of its last moments, and the lists of processes may be some
// seconds old: the job may have begun to work since. Nothing is said or done before there were new data.
void Session::confirm_first(const Fired& fire) {
  if (acting_ || confirming_first_) return;
  if (common_.dry_run && !feed_->lists_may_be_old()) return fired(fire);
  confirming_first_ = true;
  first_called_off_ = false;
  const auto confirmed = [this, fire] {
    confirming_first_ = false;
    if (acting_ || !wants_samples()) return;
    if (!first_called_off_ && still_wanted()) return fired(fire);
    if (!common_.dry_run) not_confirmed();
    engine_->outcome(subject_.id, 0, 0, common_.dry_run ? FiresAgain::in_another_stretch : FiresAgain::at_once);
  };
  feed_->confirm(confirmed, !common_.dry_run);
}

void Session::not_confirmed() {
  if (std::exchange(not_confirmed_said_, judged().verdict().truth == Truth::yes)) return;
  sink_.note(Level::note, "not-confirmed",
             not_confirmed_text(feed_->newest(), judged().scope(), common_.policy.idle, feed_->covers()));
}

// The second plan only warns; what else it finds out is said of the first one, or does not matter.
void Session::warn(const Event& event) {
  const Fired* fire = std::get_if<Fired>(&event.what);
  if (fire == nullptr) return;
  engine_->outcome(event.subject, event.plan, event.step);
  std::string gpus;
  for (const std::string& gpu : fire->why.gpus) gpus += (gpus.empty() ? "" : ", ") + gpu;
  const std::string where = common_.warn_by && common_.warn_by->for_hangs ? where_it_hangs(who_hangs()) : "";
  sink_.note(Level::warning, "warn",
             fmt::format("`{}` has held for {} on GPU{} {}: this is a warning, nothing is ended for it{}{}",
                         fire->why.rule, format_duration(std::chrono::floor<std::chrono::seconds>(fire->why.held)),
                         fire->why.gpus.size() == 1 ? "" : "s", gpus, where.empty() ? "" : "; ", where));
}

void Session::log_hang() {
  if (!common_.policy.idle.for_hangs) return;
  if (const std::string where = where_it_hangs(who_hangs()); !where.empty()) sink_.note(Level::note, "where", where);
}

FiringFacts Session::facts(std::string event, Explanation why, std::string action) const {
  FiringFacts all;
  all.event = std::move(event);
  all.why = std::move(why);
  all.at = world_.clock().wall();
  all.action = std::move(action);
  all.snapshot = feed_->newest();
  all.scope = judged().scope();
  all.job_facts = subject_.job;
  all.machine = feed_->machine();
  return all;
}

Truth Session::works_again() const {
  if (!feed_->is_fresh() || feed_->newest().driver.absence != Absence::none) return Truth::unknown;
  if (judged().fails_now(0)) return Truth::yes;
  return judged().unknown_now(0) ? Truth::unknown : Truth::no;
}

Executor::Calls Session::calls(bool in_any_case) {
  Executor::Calls calls;
  calls.tell = [this](const ActionEvent& action_event) { tell(action_event); };
  calls.still_wanted = [this] { return still_wanted(); };
  if (!in_any_case) {
    calls.works_again = [this] { return works_again(); };
    calls.age = [this] { return feed_->age(); };
  }
  calls.confirm = [this](std::function<void()> then) { feed_->confirm(std::move(then)); };
  calls.done = [this](bool all, bool called_off) {
    // It was announced, and hooks have run: it is not announced again before the rule has held for its time again.
    const bool counts = called_off && !acting_->cancelled() && engine_->holds(subject_.id);
    loop_.destroy_later(std::move(acting_));
    engine_->outcome(subject_.id, 0, 0, counts ? FiresAgain::after_another_count : FiresAgain::in_another_stretch);
    acted(all, called_off);
  };
  return calls;
}

void Session::act(std::vector<Action*> actions, Executor::Retries retries, FiringFacts facts, bool in_any_case) {
  acting_ = std::make_unique<Executor>(loop_, std::move(actions), retries, std::move(facts), true, calls(in_any_case));
  acting_->start();
}

void Session::end(SessionEnd how) {
  end_ = std::move(how);
  loop_.stop();
}

}  // namespace lull
