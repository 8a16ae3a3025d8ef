#include "session/slurm_steps.h"

#include <algorithm>
#include <optional>
#include <string>

#include "slurm/verb.h"

namespace lull {
namespace {

using slurm::UserRule;
__extension__ typedef __int128 Wide;  // two times multiplied

std::optional<slurm::VerbKind> verb_of(const ActionOption& action) {
  if (action.kind != ActionOption::Kind::slurm) return std::nullopt;
  const auto verb = slurm::parse_verb(action.argument);
  return verb ? std::optional(verb->kind) : std::nullopt;
}

// Sends a message, and does nothing to the job. A command may do anything.
bool only_tells(const EachStep& step) {
  return std::ranges::all_of(step.actions, [](const ActionOption& action) {
    return action.only_tells() || verb_of(action) == slurm::VerbKind::comment;
  });
}

Duration time_of(const EachStep& step, Duration every) {
  const std::optional<Span> span = step.when.span();
  if (!span) return Duration::zero();
  return span->samples > 0 ? every * static_cast<std::int64_t>(span->samples) : span->time;
}

// The rule of the step, for its time × wanted / reference; never less than that.
Rule moved(const EachStep& step, Duration every, Duration wanted, Duration reference) {
  if (reference <= Duration::zero()) return with_span(step.when, {.time = wanted});
  constexpr Wide kLongestTime = Duration(std::chrono::hours(24) * 10'000).count();  // as parse_duration() takes
  constexpr std::int64_t kTick = Duration(std::chrono::milliseconds(1)).count();
  const Wide product = static_cast<Wide>(time_of(step, every).count()) * wanted.count();
  const Wide time = std::min(kLongestTime, (product + reference.count() - 1) / reference.count());
  return with_span(step.when, {.time = Duration((static_cast<std::int64_t>(time) + kTick - 1) / kTick * kTick)});
}

ActionOption slurm_action(const std::string& verb) {
  return {.kind = ActionOption::Kind::slurm, .text = "slurm=" + verb, .argument = verb};
}

// The user's own way to end it, in place of the site's.
void choose(EachStep& step, UserRule::Then then) {
  for (ActionOption& action : step.actions) {
    const auto verb = verb_of(action);
    if (verb != slurm::VerbKind::requeue && verb != slurm::VerbKind::requeuehold && verb != slurm::VerbKind::cancel)
      continue;
    action = slurm_action(then == UserRule::Then::requeue ? "requeue" : "cancel");
  }
}

}  // namespace

std::vector<EachStep> steps_asked_for(const std::vector<EachStep>& site, const UserRule& asked, Duration every,
                                      Duration at_most) {
  const auto first = std::ranges::find_if_not(site, only_tells);
  const Duration reference =
      site.empty() ? Duration::zero() : time_of(first == site.end() ? site.back() : *first, every);
  const Duration longest = std::max(at_most, reference);
  const Duration wanted = std::min(asked.time, longest);
  const bool warns = asked.then == UserRule::Then::warn && first != site.end();
  std::vector<EachStep> steps;
  for (const EachStep& step : site) {
    const bool tells = only_tells(step);
    if (warns && !tells) continue;
    EachStep one = step;
    one.when = moved(step, every, wanted, reference);
    if (asked.then != UserRule::Then::site && !warns) choose(one, asked.then);
    steps.push_back(std::move(one));
  }
  if (!warns) return steps;
  steps.push_back({.when = moved(*first, every, wanted, reference), .actions = {slurm_action("comment")}});
  for (EachStep one : site)
    if (!only_tells(one)) {
      one.when = moved(one, every, longest, reference);
      steps.push_back(std::move(one));
    }
  return steps;
}

}  // namespace lull
