#include "session/each_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>

#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "view/events.h"
#include "view/progress.h"

namespace lull {
namespace {

constexpr std::size_t kMostSaid = 1000;  // then it may be said again

Plan plan_of(const EachSettings& settings, const std::vector<EachStep>& steps) {
  Plan plan;
  plan.name = "ladder";
  for (const EachStep& step : steps) plan.steps.push_back({to_text(step.when), step.when});
  plan.arm = settings.arm;
  plan.judge = {.interval = settings.every, .missing = settings.missing};
  plan.delay = settings.delay;
  return plan;
}

// What a step does, in a word or two: where a notice goes and what a command says is for its owner.
std::string brief_text(const EachStep& step) {
  std::string text;
  for (const ActionOption& action : step.actions) {
    const bool named = action.kind == ActionOption::Kind::exec || action.only_tells();
    text += (text.empty() ? "" : ",") + (named ? action.text.substr(0, action.text.find('=')) : action.text);
  }
  return text;
}

}  // namespace

std::set<uid_t> EachSession::users_of(const TrackedSubject& tracked) {
  std::set<uid_t> users;
  if (tracked.owner) return {*tracked.owner};
  for (const GpuProcess& one : tracked.holders)
    if (one.info->uid) users.insert(*one.info->uid);
  return users;
}

EachSession::EachSession(EachSettings settings, World& world, Sink& sink)
    : settings_(std::move(settings)),
      world_(world),
      loop_(world.loop()),
      sink_(sink),
      tracker_([this] {
        SubjectOptions who = settings_.who;
        for (const EachStep& step : settings_.steps)
          who.stricter_with_more = who.stricter_with_more && step.when.stricter_with_more_gpus();
        return who;
      }()),
      engine_({plan_of(settings_, settings_.steps)}) {
  if (!settings_.slurm) return;
  slurm_.emplace(*settings_.slurm);
  read_kept();
  leaders_.emplace(world_.runner());
}

// The feed reads the signals of all steps, and lists processes as often as the shortest of them asks for.
Policy EachSession::policy_to_read() const {
  const auto time = [&](const EachStep& step) {
    const std::optional<Span> span = step.when.span();
    if (!span) return Duration::zero();
    return span->samples > 0 ? settings_.every * static_cast<std::int64_t>(span->samples) : span->time;
  };
  return {.idle = std::ranges::min(settings_.steps, {}, time).when, .arm = settings_.arm};
}

Result<> EachSession::prepare() {
  TRY(world_.listen({SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD},
                    [this](const signalfd_siginfo& info) { on_signal(info); }));
  // What cannot work is said before anything is watched, though each firing makes its own.
  for (const EachStep& step : settings_.steps)
    for (const ActionOption& word : step.actions)
      for (const auto& action : world_.actions_of(word, settings_.how)) TRY(action->prepare());
  if (!settings_.evidence.empty()) TRY(during("--evidence", Evidence::prepare(settings_.evidence)));
  std::vector<Metric> more;
  for (const EachStep& step : settings_.steps)
    for (const Metric metric : step.when.signals()) more.push_back(metric);
  feed_.emplace(world_, FeedOptions{.policy = policy_to_read(),
                                    .every = settings_.every,
                                    .gpus = settings_.gpus,
                                    .everything = !settings_.evidence.empty(),
                                    .holders = true,
                                    .more_signals = std::move(more),
                                    .signals = settings_.signals});
  feed_->on_sample = [this](const Snapshot& snapshot, const Scope& scope) { on_sample(snapshot, scope); };
  feed_->on_note = [this](std::string_view event, const std::string& text) { sink_.note(Level::note, event, text); };
  return {};
}

// Without it everything works but --cancel and `lull keep`.
void EachSession::listen() {
  if (auto control =
          Control::listen(loop_, ControlOf::watch, [this](const std::string& who) { return on_cancel(who); }))
    control_ = *std::move(control);
  else
    sink_.note(Level::warning, "control", control.error().message());
  auto keep = Control::listen_to_all(loop_, [this](uid_t user, const std::string& who, const std::string& question,
                                                   const Control::Answered& answered) {
    if (const auto about = slurm::read_question(question))
      return answer_slurm(user, *about, [answered](const slurm::Answer& one) { answered(slurm::to_line(one)); });
    if (question == kJobsQuestion) return answered(to_lines(on_jobs_question(), kLongestStatus));
    if (const auto other = read_question_for(question)) {
      if (user != 0) return answered("refused: only root may ask in another's name");
      const auto asked = read_keep_question(other->second);
      if (!asked) return answered("refused: unknown request");
      return answered(on_keep(other->first,
                              fmt::format("{} (uid {}), by {},", user_name(other->first), other->first, who),
                              asked->first, asked->second));
    }
    const auto asked = read_keep_question(question);
    answered(asked ? on_keep(user, who, asked->first, asked->second) : "refused: unknown request");
  });
  if (keep)
    keep_control_ = *std::move(keep);
  else
    sink_.note(Level::warning, "control", keep.error().message());
}

SessionEnd EachSession::run() {
  if (const auto ready = prepare(); !ready) return {kExitFailure, ready.error().message()};
  if (const auto refused =
          refuse_without_gpus(*feed_, sink_, {.require_gpu = settings_.require_gpu, .named = !settings_.gpus.empty()}))
    return *refused;
  if (settings_.controlled) {
    listen();
  }
  sink_.started();
  feed_->begin();
  SessionEnd end = world_.run(end_);
  acting_.clear();
  starting_.clear();
  return end;
}

void EachSession::on_signal(const signalfd_siginfo& info) {
  if (info.ssi_signo == SIGCHLD) {
    std::vector<Executor*> all;  // one that is done leaves the map at once, and is there until the loop's next turn
    for (auto& [key, acting] : acting_) all.push_back(acting.executor.get());
    for (Executor* one : all) one->look();
    return;
  }
  if (info.ssi_signo == SIGUSR1) return feed_->release_driver();
  end_ = ended_by(static_cast<int>(info.ssi_signo));
  loop_.stop();
}

// ---- one sample

void EachSession::log_users_trouble(const std::string& text) {
  if (text != users_trouble_ && !text.empty())
    sink_.note(Level::warning, "users", text + "; jobs that may have a lease are not judged");
  users_trouble_ = text;
}

const std::vector<EachStep>& EachSession::steps_of(const SubjectId& subject) const {
  const auto own = own_steps_.find(subject);
  return own == own_steps_.end() ? settings_.steps : own->second;
}

void EachSession::begin(const SubjectId& subject, Instant at) {
  engine_.begin(subject, at, {plan_of(settings_, steps_of(subject))});
}

// Outside the hours, and during time that a user asked for, nothing fires; what holds afterwards fires then.
void EachSession::put_off(Instant at) {
  const bool may_act = settings_.hours.contain(world_.clock().wall());
  for (const TrackedSubject& tracked : tracker_.subjects()) {
    const SubjectId& id = tracked.subject.id;
    if (engine_.find(id) == nullptr) {
      begin(id, at);
      keep_as_before(tracked);
    }
    if (!may_act) engine_.keep(id, at + Duration(1));
    if (const auto kept = kept_.find(tracked.key); kept != kept_.end()) engine_.keep(id, kept->second.until);
    if (slurm_) engine_.keep(id, slurm_->not_before(tracked.job));
  }
}

// Granted time stays granted, also if nothing can be read for a while. When all its processes have ended, others do not
// inherit it. If the job works again, no time is used up: the next request is a first one.
void EachSession::forget_kept(Instant at) {
  for (auto place = kept_.begin(); place != kept_.end();) {
    Kept& kept = place->second;
    const auto tracked = std::ranges::find(tracker_.subjects(), place->first, &TrackedSubject::key);
    const bool there = tracked != tracker_.subjects().end();
    const bool seen = there && tracked->subject.scope.not_judged.empty();
    const SubjectState* judged = seen ? engine_.find(tracked->subject.id) : nullptr;
    if (judged != nullptr && judged->verdict().condition == Truth::no) kept.since.reset();
    const std::set<uid_t> users = seen ? users_of(*tracked) : kept.users;
    const bool another =
        users != kept.users && std::ranges::none_of(users, [&](uid_t user) { return kept.users.contains(user); });
    const bool used_up = kept.until <= at && (!there || !kept.since);
    place = another || used_up ? kept_.erase(place) : std::next(place);
  }
}

void EachSession::on_sample(const Snapshot& snapshot, const Scope& scope) {
  feed_->log_scope_trouble(sink_);
  if (!settings_.evidence.empty()) recorder_.add(snapshot, {}, feed_->machine());
  std::vector<AllocatedJob> allocated;
  if (slurm_) {
    allocated = slurm_->look(world_.clock().now(), world_.clock().wall());
    world_.users()->set_sluids(slurm_->sluids());
  }
  uses_ = world_.users()->look(snapshot, UserDetail::jobs, feed_->confirming());
  log_users_trouble(world_.users()->trouble());
  if (slurm_)
    look_at_slurm(allocated);
  else
    tracker_.look(scope.devices, uses_);
  forget_kept(snapshot.at);
  put_off(snapshot.at);
  // Besides known processes of Slurm's jobs there may be some that are not recognised as such.
  shares_.look(snapshot, uses_, [this](const GpuProcess& one) -> std::optional<std::string> {
    const bool known = one.identified && !one.job.empty() && (!slurm_ || one.job.starts_with("slurm:"));
    return known ? std::optional(one.job) : std::nullopt;
  });
  std::vector<Subject> subjects;
  for (const TrackedSubject& tracked : tracker_.subjects()) {
    Subject& subject = subjects.emplace_back(tracked.subject);
    // By the key: `job` is what is shown, without the start time of a tree.
    if (!tracked.job.empty()) shares_.add_to(subject.job, tracked.key.substr(kJobKey.size()), subject.scope.devices);
  }
  // A confirmation for one of them is not a sample of the others.
  const std::span<const Event> seen = engine_.observe(snapshot, subjects, feed_->machine(), feed_->in_turn());
  const std::vector<Event> events(seen.begin(), seen.end());  // a handler may ask the engine anew
  std::erase_if(not_confirmed_, [&](const Key& key) { return !engine_.holds(key.first, 0, key.second); });
  for (const Event& event : events) handle(event);
  for (auto& [key, acting] : acting_) acting.executor->judged();
  for (const TrackedSubject& tracked : tracker_.subjects())
    if (const SubjectState* judged = engine_.find(tracked.subject.id))
      sink_.note_of(log_subject(tracked), Level::debug, "sample", tracked.title + ": " + progress_text(*judged));
  show_progress(snapshot.at);
}

LogSubject EachSession::log_subject(const TrackedSubject& tracked) {
  LogSubject one{tracked.title, tracked.job, {}};
  for (const Device& device : tracked.subject.scope.devices) one.gpus.push_back(device.label());
  return one;
}

void EachSession::show_progress(Instant at) {
  EachSampled sampled{.all = {}, .dry_run = settings_.dry_run};
  sampled.of_jobs = settings_.who.per == Per::job;
  sampled.within_hours = settings_.hours.contain(world_.clock().wall());
  sampled.at = at;
  for (const TrackedSubject& tracked : tracker_.subjects()) {
    const SubjectState* judged = engine_.find(tracked.subject.id);
    if (judged == nullptr) continue;
    EachSampled::One& one = sampled.all.emplace_back(tracked.title, *judged);
    for (const EachStep& step : steps_of(tracked.subject.id))
      one.actions.push_back(settings_.dry_run ? would_text(step.actions) : to_text(step.actions));
  }
  sink_.sampled_each(sampled);
}

WatchedJob EachSession::watched(const TrackedSubject& tracked, Instant now) const {
  WatchedJob job{.key = tracked.key, .dry_run = settings_.dry_run};
  if (!tracked.holders.empty()) job.process = tracked.holders[0].id();
  if (const auto kept = kept_.find(tracked.key); kept != kept_.end() && now < kept->second.until)
    job.kept_for = kept->second.until - now;
  const SubjectState* judged = engine_.find(tracked.subject.id);
  const bool stale = feed_->age() > slurm::kFreshIntervals * settings_.every;
  if (judged == nullptr || !judged->judging() || judged->delayed(now) || tracked.subject.stopped || stale) return job;
  bool works = true;
  std::optional<Duration> soonest;
  const std::vector<EachStep>& steps = steps_of(tracked.subject.id);
  for (std::uint32_t step = 0; step < steps.size(); ++step) {
    const Verdict& verdict = judged->verdict(step);
    works = works && verdict.condition == Truth::no;
    if (verdict.condition != Truth::yes) continue;
    job.idle_for = std::max(job.idle_for.value_or(Duration::zero()), verdict.held);
    std::optional<Duration> left = judged->time_left(step, now);
    if (verdict.needed.samples > verdict.held_samples)
      left = static_cast<std::int64_t>(verdict.needed.samples - verdict.held_samples) * settings_.every;
    if (acting_.contains({tracked.subject.id, step})) left = Duration::zero();
    if (!left || (soonest && *soonest <= *left)) continue;
    soonest = left;
    job.next = brief_text(steps[step]);
  }
  if (works) job.idle_for = Duration::zero();
  if (settings_.hours.contain(world_.clock().wall())) job.next_in = soonest;
  if (job.next_in && job.kept_for) job.next_in = std::max(*job.next_in, *job.kept_for);
  return job;
}

std::vector<WatchedJob> EachSession::on_jobs_question() const {
  std::vector<WatchedJob> all;
  const Instant now = world_.clock().now();
  for (const TrackedSubject& tracked : tracker_.subjects()) all.push_back(watched(tracked, now));
  return all;
}

void EachSession::handle(const Event& event) {
  if (const Fired* fire = std::get_if<Fired>(&event.what)) return fired(event, *fire);
  if (std::holds_alternative<CalledOff>(event.what)) {
    if (const auto found = unsaid_.find({event.subject, event.step}); found != unsaid_.end()) found->second = true;
    if (const auto found = acting_.find({event.subject, event.step}); found != acting_.end())
      found->second.executor->call_off();
    return;
  }
  if (event.subject.value.empty()) return sink_.happened(event);  // of the driver
  // Each subject lives from one process to the next: what is said of one is said once for all of them.
  if (std::holds_alternative<ScopeChanged>(event.what) || std::holds_alternative<CanJudge>(event.what)) return;
  const TrackedSubject* tracked = tracker_.find(event.subject);
  const std::string about =
      tracked == nullptr || std::holds_alternative<NotJudged>(event.what) ? "" : tracked->title + ": ";
  const std::string text = about + to_string(event);
  if (std::holds_alternative<CannotJudge>(event.what) || std::holds_alternative<NotJudged>(event.what)) {
    if (said_.size() > kMostSaid) said_.clear();
    if (!said_.insert(text).second) return;
  }
  const Level level = is_trouble(event) ? Level::warning : Level::note;
  if (tracked == nullptr) return sink_.note(level, event_name(event), text);
  sink_.note_of(log_subject(*tracked), level, event_name(event), text);
}

}  // namespace lull
