#include "engine/subject_state.h"

#include <algorithm>
#include <utility>

namespace lull {
namespace {

// A first sample lacks what needs two: that is not worth a message.
bool only_first_sample(const std::vector<MissingSignal>& missing) {
  return std::ranges::all_of(missing, [](const MissingSignal& one) { return one.why == Absence::no_baseline; });
}

// How much was covered differs at every sample and makes no new story.
bool same_but_for_numbers(const MissingSignal& a, const MissingSignal& b) {
  return a.gpu == b.gpu && a.metric == b.metric && a.why == b.why && a.instead == b.instead;
}

}  // namespace

Plan plan_of(Policy policy, JudgeOptions judge, Duration delay, std::optional<Duration> max_time) {
  Plan plan{.name = "idle", .steps = {}, .arm = std::move(policy.arm)};
  plan.steps.push_back({.name = "idle", .when = std::move(policy.idle)});
  plan.rearm = policy.rearm;
  plan.judge = judge;
  plan.delay = delay;
  plan.max_time = max_time;
  return plan;
}

SubjectState::SubjectState(const Plan& plan, std::uint32_t number, SubjectId subject, Instant start)
    : plan_(plan), number_(number), subject_(std::move(subject)), start_(start), steps_(plan.steps.size()) {
  if (!plan_.judge.max_gap) plan_.judge.max_gap = longest_gap(plan_.judge.interval);
  for (Watched& step : steps_) step.verdict.armed = !plan_.arm;
}

void SubjectState::use_scope(const Scope& scope, bool judged_again, Instant at, std::vector<Event>& out) {
  const bool first = !std::exchange(begun_, true);
  // Most samples bring the scope as it was, and that is seen without making a name of each GPU.
  const bool changed = first || scope.devices != scope_;
  const bool other = first || (changed && !std::ranges::equal(scope.devices, scope_, {}, &Device::id, &Device::id));
  if (changed) scope_ = scope.devices;
  for (std::size_t i = 0; other && i < steps_.size(); ++i) {
    Watched& step = steps_[i];
    if (first)
      step.judge.emplace(Policy{.idle = plan_.steps[i].when, .arm = plan_.arm, .rearm = plan_.rearm}, scope_,
                         plan_.judge);
    else
      step.judge->set_scope(scope_);
    step.put_off = false;
  }
  if (other && !first) call_off(at, out);
  if (!scope_.empty() && ((other && !first) || (judged_again && !reasons_said_.empty())))
    emit(out, at, ScopeChanged{scope});
}

void SubjectState::call_off(std::uint32_t step, Instant at, std::vector<Event>& out) {
  if (steps_[step].firing && !std::exchange(steps_[step].called_off, true)) emit(out, at, CalledOff{}, step);
}

void SubjectState::call_off(Instant at, std::vector<Event>& out) {
  for (std::uint32_t i = 0; i < steps_.size(); ++i) call_off(i, at, out);
}

void SubjectState::look_for_missing(std::uint32_t number, Instant at, std::vector<Event>& out) {
  Watched& step = steps_[number];
  if (step.verdict.condition != Truth::unknown) {
    if (step.missing_said) emit(out, at, CanJudge{}, number);
    step.missing_said.reset();
    step.missing.clear();
    return;
  }
  std::vector<MissingSignal> missing = step.judge->missing();
  if (missing.empty() || only_first_sample(missing)) return;
  const bool again = step.missing_said && at - *step.missing_said < plan_.remind;
  if (again && std::ranges::equal(missing, step.missing, same_but_for_numbers)) return;
  step.missing_said = at;
  step.missing = missing;
  emit(out, at, CannotJudge{std::move(missing)}, number);
}

void SubjectState::observe(const Snapshot& snapshot, const Subject& subject, const Facts& machine, bool no_gpu,
                           bool counts, std::vector<Event>& out) {
  const Instant at = snapshot.at;
  if (subject.stopped != stopped_) stopped(subject.stopped);
  const std::string& reason = subject.scope.not_judged;
  const bool was_not_judged = std::exchange(not_judged_, !reason.empty());
  unseen_ = subject.scope.unseen;
  if (not_judged_) {
    if (!was_not_judged) begin_anew();
    call_off(at, out);
    if (!delayed(at) && !no_gpu && reasons_said_.insert(reason).second) emit(out, at, NotJudged{reason});
    return;
  }
  use_scope(subject.scope, was_not_judged, at, out);
  if (stopped_) call_off(at, out);
  if (delayed(at) || stopped_) return;

  const Duration gap = last_at_ ? at - *last_at_ : Duration::zero();
  const bool lost_streak = gap > plan_.judge.max_gap && std::ranges::any_of(steps_, [](const Watched& step) {
                             return step.verdict.held > Duration::zero();
                           });
  last_at_ = at;
  if (lost_streak) emit(out, at, Gap{gap});
  for (std::uint32_t i = 0; i < steps_.size(); ++i) judge_step(i, snapshot, subject, machine, no_gpu, counts, out);
}

void SubjectState::judge_step(std::uint32_t number, const Snapshot& snapshot, const Subject& subject,
                              const Facts& machine, bool no_gpu, bool counts, std::vector<Event>& out) {
  Watched& step = steps_[number];
  const auto verdict = step.judge->observe(snapshot, subject.job, machine, counts);
  if (!verdict) return;  // time went backwards: nothing can be said of this sample
  step.verdict = *verdict;
  // The arming rule is one for the whole ladder.
  const bool was_armed = std::exchange(step.was_armed, step.verdict.armed);
  if (plan_.arm && step.verdict.armed && !was_armed && number == 0) emit(out, snapshot.at, Armed{plan_.arm->text});
  if (!no_gpu) look_for_missing(number, snapshot.at, out);
  decide(number, snapshot.at, out);
}

void SubjectState::decide(std::uint32_t number, Instant at, std::vector<Event>& out) {
  Watched& step = steps_[number];
  const bool yes = step.verdict.truth == Truth::yes;
  if (!yes) call_off(number, at, out);
  // One that comes while the last one is still being dealt with is put off until that is done.
  const bool wait = at < keep_until_ || step.firing;
  const bool fires = step.verdict.fires || (std::exchange(step.put_off, false) && yes);
  step.put_off = wait && fires;
  if (!fires || wait || time_up_) return;
  step.firing = true;
  emit(out, at, Fired{step.judge->explain()}, number);
}

void SubjectState::begin_anew(Watched& step) {
  if (step.judge) step.judge->begin_anew();
  step.verdict.held = {};
  step.verdict.held_samples = 0;
  step.verdict.condition = step.verdict.truth = Truth::unknown;
}

void SubjectState::begin_anew() {
  for (Watched& step : steps_) begin_anew(step);
  last_at_.reset();
}

void SubjectState::outcome(std::uint32_t step, FiresAgain again) {
  Watched& one = steps_[step];
  one.firing = one.called_off = false;
  one.put_off = one.put_off || again == FiresAgain::at_once;
  if (again == FiresAgain::after_another_count) begin_anew(one);
}

void SubjectState::stopped(bool stopped) {
  stopped_ = stopped;
  begin_anew();
}

std::optional<Instant> SubjectState::next_time() const {
  if (!plan_.max_time || time_up_) return std::nullopt;
  return start_ + *plan_.max_time;
}

void SubjectState::time_is(Instant now, std::vector<Event>& out) {
  const auto next = next_time();
  if (!next || now < *next) return;
  time_up_ = true;
  emit(out, now, TimeUp{*next - start_});
}

std::optional<Duration> SubjectState::time_left(std::uint32_t step, Instant now) const {
  const Verdict& now_so = steps_[step].verdict;
  if (!judging() || stopped_ || steps_[step].firing || !now_so.armed || now_so.condition != Truth::yes) return {};
  if (now_so.needed.samples > 0) return {};
  const bool fires_yet = now_so.held < now_so.needed.time || steps_[step].put_off;
  if (!fires_yet) return {};
  const Duration held_back = keep_until_ > now ? keep_until_ - now : Duration::zero();
  return std::max({now_so.needed.time - now_so.held, held_back, Duration::zero()});
}

}  // namespace lull
