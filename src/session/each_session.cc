#include "session/each_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "base/text.h"
#include "base/units.h"
#include "view/events.h"
#include "view/news.h"
#include "view/progress.h"

namespace lull {
namespace {

constexpr std::size_t kMostSaid = 1000;  // then it may be said again

Plan plan_of(const EachSettings& settings) {
  Plan plan;
  plan.name = "ladder";
  for (const EachRung& rung : settings.rungs) plan.rungs.push_back({to_text(rung.when), rung.when});
  plan.arm = settings.arm;
  plan.judge = {.interval = settings.every, .missing = settings.missing};
  plan.delay = settings.delay;
  return plan;
}

}  // namespace

std::set<uid_t> EachSession::users_of(const Member& member) {
  std::set<uid_t> users;
  for (const Holder& one : member.holders) users.insert(one.user);
  return users;
}

EachSession::EachSession(EachSettings settings, World& world, Sink& sink)
    : settings_(std::move(settings)),
      world_(world),
      loop_(world.loop()),
      sink_(sink),
      roster_([this] {
        RosterOptions who = settings_.who;
        for (const EachRung& rung : settings_.rungs)
          who.stricter_with_more = who.stricter_with_more && rung.when.stricter_with_more_gpus();
        return who;
      }()),
      engine_({plan_of(settings_)}) {}

// The feed reads the signals of all rungs, and lists processes as often as the shortest of them asks for.
Policy EachSession::policy_to_read() const {
  const auto time = [&](const EachRung& rung) {
    const std::optional<Span> span = rung.when.span();
    if (!span) return Duration::zero();
    return span->samples > 0 ? settings_.every * static_cast<std::int64_t>(span->samples) : span->time;
  };
  return {.idle = std::ranges::min(settings_.rungs, {}, time).when, .arm = settings_.arm};
}

Result<> EachSession::prepare() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&set, number);
  TRY(world_.listen(set, [this](const signalfd_siginfo& info) { on_signal(info); }));
  // What cannot work is said before anything is watched, though each firing makes its own.
  for (const EachRung& rung : settings_.rungs)
    for (const ActionWord& word : rung.actions)
      for (const auto& action : world_.actions_of(word, settings_.how)) TRY(action->prepare());
  std::vector<Metric> more;
  for (const EachRung& rung : settings_.rungs)
    for (const Metric metric : rung.when.signals()) more.push_back(metric);
  feed_.emplace(world_, FeedOptions{.policy = policy_to_read(),
                                    .every = settings_.every,
                                    .gpus = settings_.gpus,
                                    .holders = true,
                                    .more_signals = std::move(more)});
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
  auto keep = Control::listen_to_all(loop_, [this](uid_t user, const std::string& who, const std::string& question) {
    const auto asked = read_keep_question(question);
    return asked ? on_keep(user, who, asked->first, asked->second) : "refused: that is no question of lull's";
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
  const auto ran = loop_.run();
  acting_.clear();
  return ran ? end_ : SessionEnd{kExitFailure, ran.error().message()};
}

void EachSession::on_signal(const signalfd_siginfo& info) {
  if (info.ssi_signo == SIGCHLD) {
    for (auto& [key, acting] : acting_) acting.executor->look();
    return;
  }
  if (info.ssi_signo == SIGUSR1) return feed_->let_go();
  end_ = {128 + static_cast<int>(info.ssi_signo)};
  loop_.stop();
}

// ---- one sample

void EachSession::say_about_scope() {
  if (feed_->trouble() != scope_trouble_) {
    scope_trouble_ = feed_->trouble();
    if (!scope_trouble_.empty()) sink_.note(Level::warning, "scope", scope_trouble_);
  }
  for (const std::string& text : feed_->take_notes()) sink_.note(Level::warning, "scope", text);
}

// Outside the hours, and while somebody asked for more time, nothing fires; what holds then fires then.
void EachSession::put_off(Instant at) {
  const bool may_act = settings_.hours.contain(world_.clock().wall());
  for (const Member& member : roster_.members()) {
    const SubjectId& id = member.subject.id;
    if (engine_.find(id) == nullptr) engine_.begin(id, at);
    if (!may_act) engine_.keep(id, at + Duration(1));
    if (const auto kept = kept_.find(member.key); kept != kept_.end()) engine_.keep(id, kept->second.until);
  }
}

// What was given stays given, also where nothing can be seen for a while; when all for whom it was are gone, others
// do not inherit it. Who works again has used up no time: the next ask is a first one.
void EachSession::forget_kept(Instant at) {
  for (auto place = kept_.begin(); place != kept_.end();) {
    Kept& kept = place->second;
    const auto member = std::ranges::find(roster_.members(), place->first, &Member::key);
    const bool there = member != roster_.members().end();
    const bool seen = there && member->subject.scope.not_judged.empty();
    const Case* judged = seen ? engine_.find(member->subject.id) : nullptr;
    if (judged != nullptr && judged->verdict().condition == Truth::no) kept.since.reset();
    const std::set<uid_t> users = seen ? users_of(*member) : kept.users;
    const bool another =
        users != kept.users && std::ranges::none_of(users, [&](uid_t user) { return kept.users.contains(user); });
    const bool used_up = kept.until <= at && (!there || !kept.since);
    place = another || used_up ? kept_.erase(place) : std::next(place);
  }
}

void EachSession::on_sample(const Snapshot& snapshot, const Scope& scope) {
  say_about_scope();
  cards_ = world_.census(snapshot);
  roster_.look(scope.devices, cards_);
  forget_kept(snapshot.at);
  put_off(snapshot.at);
  std::vector<Subject> subjects;
  for (const Member& member : roster_.members()) subjects.push_back(member.subject);
  const std::span<const Event> seen = engine_.observe(snapshot, subjects, feed_->machine());
  const std::vector<Event> events(seen.begin(), seen.end());  // a handler may ask the engine anew
  for (const Event& event : events) handle(event);
  for (auto& [key, acting] : acting_) acting.executor->judged();
  for (const Member& member : roster_.members())
    if (const Case* judged = engine_.find(member.subject.id))
      sink_.note_of(whom(member), Level::debug, "sample", member.title + ": " + progress_text(*judged));
  show_progress(snapshot.at);
}

Whom EachSession::whom(const Member& member) {
  Whom one{member.title, member.job, {}};
  for (const Device& device : member.subject.scope.devices) one.gpus.push_back(device.label());
  return one;
}

void EachSession::show_progress(Instant at) {
  EachSampled sampled{.all = {}, .actions = {}, .dry_run = settings_.dry_run};
  sampled.of_jobs = settings_.who.per == Per::job;
  sampled.within_hours = settings_.hours.contain(world_.clock().wall());
  sampled.at = at;
  for (const EachRung& rung : settings_.rungs)
    sampled.actions.push_back(settings_.dry_run ? would_text(rung.actions) : in_words(rung.actions));
  for (const Member& member : roster_.members())
    if (const Case* judged = engine_.find(member.subject.id)) sampled.all.push_back({member.title, *judged});
  sink_.sampled_each(sampled);
}

void EachSession::handle(const Event& event) {
  if (const Fired* fire = std::get_if<Fired>(&event.what)) return fired(event, *fire);
  if (std::holds_alternative<CalledOff>(event.what)) {
    if (const auto found = acting_.find({event.subject, event.rung}); found != acting_.end())
      found->second.executor->call_off();
    return;
  }
  if (event.subject.value.empty()) return sink_.happened(event);  // of the driver
  // Each subject lives from one process to the next: what is said of one is said once for all of them.
  if (std::holds_alternative<ScopeChanged>(event.what) || std::holds_alternative<CanJudge>(event.what)) return;
  const Member* member = roster_.find(event.subject);
  const std::string about =
      member == nullptr || std::holds_alternative<NotJudged>(event.what) ? "" : member->title + ": ";
  const std::string text = about + to_words(event);
  if (std::holds_alternative<CannotJudge>(event.what) || std::holds_alternative<NotJudged>(event.what)) {
    if (said_.size() > kMostSaid) said_.clear();
    if (!said_.insert(text).second) return;
  }
  const Level level = is_trouble(event) ? Level::warning : Level::note;
  if (member == nullptr) return sink_.note(level, event_word(event), text);
  sink_.note_of(whom(*member), level, event_word(event), text);
}

}  // namespace lull
