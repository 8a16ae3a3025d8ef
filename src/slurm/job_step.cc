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

constexpr Duration kEarlyIsGood = kCommandLimit / 2;  // what nodes were asked before must leave time for the verb

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
  asking_.reset();
  if (!options_.asks_nodes) return act();
  const auto nodes = parse_node_list(options_.job.nodes);
  // To ask: which run it is does not matter then.
  const bool nobody_else = !options_.verb && nodes && nodes->size() == 1 && options_.job.het_job == 0;
  if ((!options_.job.restarts && !nobody_else) || options_.job.nodes.empty())
    return give_up("its allocation file does not say its nodes and restarts: `lull slurm prolog` writes one that does");
  if (!nodes) return give_up(nodes.error().message());
  if (std::ranges::find(*nodes, options_.job.node) == nodes->end())
    return give_up(fmt::format("{} is not among the job's nodes {}", options_.job.node, options_.job.nodes));
  if (options_.job.het_job != 0 || nodes->size() > 1) return ask();
  NodeGroup alone{.job = options_.job.job, .nodes = *nodes, .heard = Agreement{}};
  for (const unsigned number : options_.job.gpus) alone.heard->judged.emplace_back(options_.job.node, number);
  groups_.push_back(std::move(alone));
  act();
}

void JobStep::ask() {
  const bool early = std::exchange(early_, false) && options_.early && options_.early->age() <= kEarlyIsGood;
  if (early) {
    asking_ = options_.early;
  } else {
    asking_ = std::make_shared<AskNodes>(loop_, run_, AskNodes::Options{options_.job, options_.program, options_.rule});
    asking_->start();
  }
  asking_->when_heard([this, here = here_, early](const NodesSaid& said) {
    if (*here && done_) heard(said, early);
  });
}

void JobStep::heard(const NodesSaid& said, bool early) {
  if (!said.why.empty() && early) return ask();
  if (said.never) return give_up(said.why);
  groups_ = said.groups;
  if (said.unknown()) return look({});  // squeue is to say so as well
  if (!said.why.empty()) return not_now(said.why, said.again_in);
  if (asking_->age() > kCommandLimit) return not_now("asking its nodes took too long");
  act();
}

void JobStep::act() { look(options_.verb); }

void JobStep::look(std::optional<Verb> verb) {
  const bool agreed = std::ranges::none_of(groups_, &NodeGroup::unknown);
  Judged judged{.job = options_.job.job,
                .restarts = options_.job.restarts,
                .user = options_.job.uid,
                .nodes = options_.job.nodes,
                .gpus = options_.job.gpus.size()};
  std::vector<JudgedPart> parts;
  for (const NodeGroup& group : groups_) {
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
                        .acts = options_.acts,
                        .policy = options_.policy,
                        .reason = reason_,
                        .dry_run = options_.dry_run,
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
  if (asking_ && asking_->age() > kCommandLimit) {
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
    case ActResult::Kind::not_now:
      if (result.unanswered && on_unanswered) on_unanswered(result);
      return not_now(result.text, result.again_in);
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
