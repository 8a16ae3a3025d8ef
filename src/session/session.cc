#include "session/session.h"

#include <fmt/format.h>

#include <utility>

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

Session::Session(SessionSettings settings, SubjectId subject, World& world, Sink& sink)
    : common_(std::move(settings)), world_(world), loop_(world.loop()), sink_(sink) {
  subject_.id = std::move(subject);
  rule_wants_work_ = common_.watch_work || policy_uses(common_.policy, Of::job);
}

Session::~Session() {
  if (time_limit_) loop_.cancel(*time_limit_);
}

void Session::make_feed(bool of_job, bool everything, JobContexts::IsOurs is_ours) {
  feed_.emplace(world_,
                FeedOptions{.policy = common_.policy,
                            .every = common_.every,
                            .gpus = common_.gpus,
                            .absent_left_out = common_.absent_left_out,
                            .of_job = of_job,
                            .everything = everything,
                            .more_signals = common_.warn_by ? common_.warn_by->signals() : std::vector<Metric>(),
                            .is_ours = std::move(is_ours)});
  feed_->on_tick = [this](std::uint64_t tick) {
    if (wants_samples()) sink_.ticked(tick);
  };
  feed_->on_sample = [this](const Snapshot& snapshot, const Scope& scope) { on_sample(snapshot, scope); };
  feed_->on_note = [this](std::string_view event, const std::string& text) { sink_.note(Level::note, event, text); };
}

void Session::begin_subject() {
  const JudgeOptions how{.interval = common_.every, .missing = common_.missing};
  std::vector<Plan> plans = {plan_of(common_.policy, how, common_.delay, common_.max_time)};
  if (common_.warn_by) plans.push_back(plan_of({.idle = *common_.warn_by}, how, common_.delay));
  engine_.emplace(std::move(plans));
  subject_ = {.id = subject_.id, .scope = {}};
  engine_->begin(subject_.id, world_.clock().now());
  set_time_limit();
}

void Session::say_nobody_there() {
  for (const std::string& text : common_.also.nobody_in())
    sink_.note(Level::warning, "also", "--also " + printable(text) + ": nobody is there yet");
}

void Session::set_time_limit() {
  if (time_limit_) loop_.cancel(*time_limit_);
  time_limit_.reset();
  if (const auto next = engine_->next_time())
    time_limit_ = loop_.at(*next, [this] {
      time_limit_.reset();
      handle(engine_->time_is(world_.clock().now()));
    });
}

void Session::say_about_scope() {
  if (feed_->trouble() != scope_trouble_) {
    scope_trouble_ = feed_->trouble();
    if (!scope_trouble_.empty()) sink_.note(Level::warning, "scope", scope_trouble_);
  }
  for (const std::string& text : feed_->take_notes()) sink_.note(Level::warning, "scope", text);
  for (const std::string& text : common_.also.take_ended())
    sink_.note(Level::note, "also", "--also " + printable(text) + ": it has ended, with all that it started");
}

void Session::set_stopped(bool stopped) {
  if (stopped == subject_.stopped) return;
  subject_.stopped = stopped;
  if (engine_) engine_->stopped(subject_.id, stopped);
}

bool Session::stands_still(bool traced, std::vector<pid_t> others, std::string_view whose, std::string_view of) {
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
    sink_.note(Level::warning, "io", "`io` is not known: " + usage.uncounted + ", and nobody counts the bytes of that");
}

void Session::on_sample(const Snapshot& snapshot, const Scope& scope) {
  if (!wants_samples() && !looks_once_more()) return sense(snapshot);
  if (wants_samples() || feed_->confirming()) say_about_scope();
  subject_.job.miss(Metric::beat, Absence::no_beat);  // unless somebody knows better
  sense(snapshot);
  subject_.scope = scope;
  const std::span<const Event> events = engine_->observe(snapshot, {&subject_, 1}, feed_->machine());
  if (acting_) acting_->judged();
  if (!wants_samples()) return;  // before SIGKILL: what else it shows matters only if that is called off
  feed_->may_fire_next(is_near(judged().verdict(), common_.every));
  // What only confirms, out of turn, is no sample of anybody's log.
  if (!feed_->confirming())
    sink_.sampled({snapshot, subject_, feed_->machine(), judged()}, acting_ ? acting_->waits_until() : std::nullopt);
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
      if (acting_) acting_->call_off();
    } else {
      sink_.happened(event);
    }
  }
}

// The readings are of now, but the lists of processes may be some seconds old, and the job may have begun to work on
// another GPU since. Nothing is said or done before new ones were looked at.
void Session::confirm_first(const Fired& fire) {
  if (acting_) return;
  if (!feed_->lists_may_be_old()) return fired(fire);
  feed_->confirm([this, fire] {
    if (acting_ || !wants_samples()) return;
    if (still_wanted()) return fired(fire);
    engine_->outcome(subject_.id);
  });
}

// The second plan only warns; what else it finds out is said of the first one, or matters to nobody.
void Session::warn(const Event& event) {
  const Fired* fire = std::get_if<Fired>(&event.what);
  if (fire == nullptr) return;
  engine_->outcome(event.subject, event.plan, event.rung);
  std::string gpus;
  for (const std::string& gpu : fire->why.gpus) gpus += (gpus.empty() ? "" : ", ") + gpu;
  sink_.note(Level::warning, "warn",
             fmt::format("`{}` has held for {} on GPU{} {}: this is a warning, nothing is ended for it", fire->why.rule,
                         format_duration(std::chrono::floor<std::chrono::seconds>(fire->why.held)),
                         fire->why.gpus.size() == 1 ? "" : "s", gpus));
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

void Session::act(std::vector<Action*> actions, Executor::Retries retries, FiringFacts facts, bool in_any_case) {
  acting_ = std::make_unique<Executor>(
      loop_, std::move(actions), retries, std::move(facts), in_any_case || feed_->is_fresh(),
      Executor::Calls{.tell = [this](const News& news) { tell(news); },
                      .still_wanted = [this] { return still_wanted(); },
                      .works_again = in_any_case ? std::function<bool()>() : [this] { return works_again(); },
                      .confirm = [this](std::function<void()> then) { feed_->confirm(std::move(then)); },
                      .done =
                          [this](bool all, bool called_off) {
                            // Called from inside the run that ends here: it goes when the stack is empty.
                            loop_.in(Duration::zero(), [over = std::shared_ptr<Executor>(std::move(acting_))] {});
                            engine_->outcome(subject_.id);
                            acted(all, called_off);
                          }});
  acting_->start();
}

void Session::end(SessionEnd how) {
  end_ = std::move(how);
  loop_.stop();
}

}  // namespace lull
