#include "slurm/job_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "slurm/node_list.h"

namespace lull::slurm {
namespace {

using namespace std::chrono_literals;

constexpr Duration kLookAgain = 10s;         // at a job that does not run at the moment
constexpr Duration kLeftToAnother = 10min;   // then it is looked at again
constexpr std::size_t kMostComponents = 16;  // each is asked by an srun of its own, all at once

}  // namespace

std::string reason_of(const FiringFacts& facts, const Allocation& job) {
  return fmt::format("lull: {} held for {} on {} GPU {} since {}; `lull keep {} 4h` keeps it", facts.why.rule,
                     format_duration(std::chrono::floor<std::chrono::seconds>(facts.why.held)), job.node,
                     fmt::join(facts.why.gpus, ","), format_rfc3339(facts.why.since, 0), job.name());
}

void JobStep::start(const FiringFacts& facts, Done done, Tell tell) {
  done_ = std::move(done);
  tell_ = std::move(tell);
  reason_ = reason_of(facts, options_.job);
  idle_for_ = facts.why.needed.time > Duration::zero() ? facts.why.needed.time : facts.why.held;
  groups_.clear();
  asked_.reset();
  if (!options_.asks_nodes) return act();
  const auto nodes = parse_node_list(options_.job.nodes);
  // To ask: which run it is does not matter then.
  const bool nobody_else = !options_.verb && nodes && nodes->size() == 1 && options_.job.het_job == 0;
  if ((!options_.job.restarts && !nobody_else) || options_.job.nodes.empty())
    return give_up("its allocation file does not say its nodes and restarts: `lull slurm prolog` writes one that does");
  if (!nodes) return give_up(nodes.error().message());
  if (std::ranges::find(*nodes, options_.job.node) == nodes->end())
    return give_up(fmt::format("{} is not among the job's nodes {}", options_.job.node, options_.job.nodes));
  if (options_.job.het_job != 0) return look_at_components();
  if (nodes->size() > 1) return ask({{.job = options_.job.job, .restarts = *options_.job.restarts, .nodes = *nodes}});
  Group alone{.job = options_.job.job, .nodes = *nodes, .heard = Agreement{}};
  for (const unsigned number : options_.job.gpus) alone.heard->judged.emplace_back(options_.job.node, number);
  groups_.push_back(std::move(alone));
  act();
}

void JobStep::look_at_components() {
  run_(components_command(options_.job.het_job), kCommandLimit, [this, here = here_](const HelperResult& result) {
    if (*here && done_) ask_components(result);
  });
}

void JobStep::ask_components(const HelperResult& result) {
  if (!result.ok()) return not_now(fmt::format("squeue: {}", result.trouble));
  const auto components = read_components(result.output, options_.job.het_job);
  if (!components) return not_now(components.error().message(), kLookAgain);
  if (components->size() > kMostComponents)
    return give_up(
        fmt::format("it is of a het job with {} components, more than {}", components->size(), kMostComponents));
  std::vector<Group> groups;
  bool ours = false;
  for (const Component& one : *components) {
    const auto nodes = parse_node_list(one.nodes);
    if (one.state != "RUNNING" || !nodes || nodes->empty())
      return not_now(
          fmt::format("component {} of het job {} is {} now", one.job, options_.job.het_job, printable(one.state)),
          kLookAgain);
    ours = ours || (one.job == options_.job.job && one.restarts == *options_.job.restarts);
    groups.push_back({.job = one.job, .restarts = one.restarts, .nodes = *nodes, .number = one.group});
  }
  if (!ours) return not_now("squeue shows another run of it", kLookAgain);
  ask(std::move(groups));
}

void JobStep::ask(std::vector<Group> groups) {
  if (options_.job.user.empty()) return give_up("its user has no name on this node: srun cannot be run as them");
  groups_ = std::move(groups);
  asked_ = loop_.now();
  for (std::size_t i = 0; i < groups_.size(); ++i) ask_one(i);
}

void JobStep::ask_one(std::size_t at) {
  const Group& group = groups_[at];
  const Command question = {options_.program, "slurm",  "ask",        std::to_string(group.job),
                            "--plain",        "--rule", options_.rule};
  run_(ask_command(group.number ? options_.job.het_job : group.job, options_.job.user, group.nodes.size(), question,
                   group.number),
       kCommandLimit, [this, here = here_, at](const HelperResult& result) {
         if (*here && done_) heard(at, result);
       });
}

void JobStep::heard(std::size_t at, const HelperResult& result) {
  Group& group = groups_[at];
  group.heard = agree(group.job, group.restarts, group.nodes, result.output);
  // A node that says no ends srun with its status: what it says is what counts.
  if (!result.ok() && (group.heard->agreed || group.heard->answers != group.nodes.size())) {
    const std::string said = printable(trim(std::string_view(result.output).substr(0, 300)));
    group.heard->agreed = false;
    group.heard->why = fmt::format("asking its nodes: {}{}{}", result.trouble, said.empty() ? "" : ": ", said);
    group.heard->again_in.reset();
    group.unknown = group.heard->answers == 0 && is_unknown_job(result.output);
  }
  if (std::ranges::all_of(groups_, [](const Group& one) { return one.heard.has_value(); })) all_heard();
}

void JobStep::all_heard() {
  std::string why;
  std::optional<Duration> again_in;
  for (const Group& group : groups_) {
    if (group.heard->agreed) continue;
    if (why.empty()) why = group.heard->why;
    if (group.heard->again_in) again_in = std::max(again_in.value_or(Duration::zero()), *group.heard->again_in);
  }
  if (std::ranges::any_of(groups_, &Group::unknown)) return look({});  // squeue is to say so as well
  if (!why.empty()) return not_now(std::move(why), again_in);
  if (loop_.now() - *asked_ > kCommandLimit) return not_now("asking its nodes took too long");
  if (!std::ranges::all_of(groups_, [](const Group& one) { return one.heard->complete; }))
    return not_now("its nodes do not say which GPUs it has there");
  for (const Group& group : groups_) {
    const bool ours = group.job == options_.job.job;
    // Put off and not called off: our own streak must go on, which is what the other waits for.
    if (!group.heard->judged.empty() && !(ours && group.heard->leader == options_.job.node))
      return not_now(group.heard->leader + " acts on it", kLeftToAnother);
    if (ours) break;
  }
  act();
}

void JobStep::act() { look(options_.verb); }

void JobStep::look(std::optional<Verb> verb) {
  const bool agreed = std::ranges::none_of(groups_, &Group::unknown);
  Judged judged{.job = options_.job.job,
                .restarts = options_.job.restarts,
                .user = options_.job.uid,
                .nodes = options_.job.nodes,
                .gpus = options_.job.gpus.size()};
  std::vector<JudgedPart> parts;
  for (const Group& group : groups_) {
    if (group.job == options_.job.job) judged.gpus = group.heard->judged.size();
    if (agreed) parts.push_back({.job = group.job, .nodes = group.nodes, .gpus = group.heard->judged});
  }
  // Squeue tells the GPUs of one component, and those of all were seen.
  if (!options_.asks_nodes && options_.job.het_job != 0) judged.gpus.reset();
  acting_ = std::make_unique<ActOnJob>(
      run_,
      ActOnJob::Request{.judged = std::move(judged),
                        .parts = std::move(parts),
                        .runs_since = loop_.clock().wall() - idle_for_,
                        .verb = std::move(verb),
                        .policy = options_.policy,
                        .reason = reason_,
                        .het_job = options_.job.het_job,
                        .keep = on_keep},
      [this](std::function<void()> go) { check(std::move(go)); },
      [this, agreed](const ActResult& result) {
        if (agreed || result.kind == ActResult::Kind::no_longer) return acted(result);
        not_now("srun knows no such job");
      });
  acting_->start();
}

// Our own confirmation: by a sample of this moment, or by another one. What the other nodes said has to be as fresh.
void JobStep::check(std::function<void()> go) {
  if (!leave_.holds) return;
  if (asked_ && loop_.now() - *asked_ > kCommandLimit) {
    acting_->leave_off();
    return not_now("what its nodes said is too old by now");
  }
  if (leave_.holds()) return go();
  leave_.again([this, here = here_, go = std::move(go)] {
    if (*here && done_) check(go);
  });
}

void JobStep::acted(const ActResult& result) {
  switch (result.kind) {
    case ActResult::Kind::done:
      if (result.verb.kind == VerbKind::requeue && on_requeued) on_requeued(result);
      return finish({});
    case ActResult::Kind::no_longer:
      if (result.gone && on_gone) on_gone();
      return not_now(result.text, kLookAgain);
    case ActResult::Kind::not_now: return not_now(result.text, result.again_in);
    case ActResult::Kind::kept: return finish({.called_off = true});
    case ActResult::Kind::refused: return give_up(result.text);
    case ActResult::Kind::failed: return finish({.ok = false, .trouble = result.text});
  }
}

bool JobStep::undo() {
  if (acting_ && acting_->too_late()) return false;
  *here_ = false;
  here_ = std::make_shared<bool>(true);
  done_ = nullptr;
  acting_.reset();
  return true;
}

void JobStep::not_now(std::string why, std::optional<Duration> again_in) {
  finish({.ok = false, .trouble = std::move(why), .not_now = true, .again_in = again_in});
}

void JobStep::give_up(std::string why) {
  given_up_ = true;
  if (options_.verb) return finish({.ok = false, .trouble = std::move(why)});
  // What was to follow an agreement does not.
  if (tell_) tell_(Failed{options_.text, why});
  finish({.ok = false, .trouble = std::move(why), .called_off = true});
}

void JobStep::finish(const Outcome& outcome) {
  const Done done = std::exchange(done_, nullptr);
  if (done) done(outcome);
}

}  // namespace lull::slurm
