#pragma once
// A Decider is one policy over one series of samples: when does it fire? It is the part of the engine that live and
// replay share to the letter. Live feeds blocks of one sample (judge.h), replay blocks of a thousand
// (replay/judging.h), and the answers are equal for any way of cutting the series.
//
// To what the policy says it adds what belongs to every beginning: nothing is judged before the delay is over, and the
// first sample never fires alone, unless there were others before it.

#include <span>
#include <utility>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/block.h"
#include "rule/policy.h"

namespace lull {

// From when on a subject is judged that began at `start`.
inline Instant judged_from(Instant start, Duration delay) { return start + delay; }

// A copy decides for another series by the same policy, as a copy of an Evaluator does.
class Decider {
 public:
  Decider(const Policy& policy, const EvaluatorOptions& options)
      : evaluator_(PolicyEvaluator::compile(policy, options)) {}

  // As Evaluator::feed(). Allocates nothing.
  Result<> feed(std::span<const Block> scope, PolicyAnswers& out);
  void count(bool counts) { evaluator_.count(counts); }  // as Evaluator::count()

  // This one goes on where that one stopped, on other GPUs or after a pause. Every streak begins anew: what was armed
  // stays armed, and the first sample of all has been.
  void follow(const Decider& before);
  // Samples came before the first that is judged: it tells of the time since them, and may fire alone.
  void had_samples() { begun_ = true; }
  // A copy for a series of which nothing has been seen, where another gap breaks a streak.
  Decider for_gap(Duration max_gap) const { return Decider(evaluator_.for_gap(max_gap)); }
  // From here on another gap breaks a streak; none lies before the next sample.
  void set_gap(Duration max_gap) { evaluator_ = evaluator_.for_gap(max_gap); }

  const PolicyEvaluator& evaluator() const { return evaluator_; }
  // Of memory that a copy takes.
  std::size_t bytes() const { return sizeof(Decider) - sizeof(PolicyEvaluator) + evaluator_.bytes(); }

 private:
  explicit Decider(PolicyEvaluator evaluator) : evaluator_(std::move(evaluator)) {}

  PolicyEvaluator evaluator_;
  bool begun_ = false;    // a sample has been judged
  bool put_off_ = false;  // it would have fired
};

}  // namespace lull
