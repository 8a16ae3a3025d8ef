#pragma once
// A Policy says when to act: an idle rule, and perhaps an arming rule that must have
// held once before anything may fire. The streak that fires counts from the arming:
// what lay before it was not watched for. A policy fires once a stretch, at the first
// sample that is a definite yes; a sample that is not yes, or a gap, ends the stretch.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "rule/evaluator.h"
#include "rule/rule.h"
#include "rule/timeline.h"
#include "rule/truth.h"

namespace lull {

struct Policy {
  Rule idle;
  std::optional<Rule> arm = {};
  bool rearm = false;  // after a firing, the arming rule must hold again

  static Result<Policy> parse(std::string_view idle, std::optional<std::string_view> arm = {});
};

struct PolicyAnswers {
  Answers rule;       // of the idle rule, whether armed or not
  Answers condition;  // of the idle rule without its outermost `for`
  Mask armed;         // after this sample
  Mask fires;
  Mask gaps;  // a gap lies before this sample
};

// A copy judges another series by the same policy, as a copy of an Evaluator does.
class PolicyEvaluator {
 public:
  static PolicyEvaluator compile(const Policy& policy, const EvaluatorOptions& options);

  // As Evaluator::feed().
  Result<> feed(std::span<const Block> scope, PolicyAnswers& out);
  void count(bool counts);  // as Evaluator::count()

  bool armed() const { return armed_; }
  void arm();  // as if the arming rule had held at the newest sample
  Progress progress() const { return idle().progress(); }
  // The one that answers for the idle rule now.
  const Evaluator& idle() const { return waits_to_arm() ? unarmed_.front().idle : idle_; }
  Progress arm_progress() const { return waits_to_arm() ? unarmed_.front().arm.progress() : Progress{}; }
  std::size_t bytes() const;  // of memory that a copy takes
  // A copy for a series of which nothing has been seen, where another gap breaks a streak.
  PolicyEvaluator for_gap(Duration max_gap) const;

 private:
  explicit PolicyEvaluator(Evaluator idle) : idle_(std::move(idle)) {}
  std::span<const Block> piece(std::span<const Block> scope, std::size_t from);
  const Mask& gaps_from(const Mask& gaps, std::size_t from);
  bool waits_to_arm() const { return !unarmed_.empty() && !armed_; }
  // Judges while not armed.
  struct Unarmed {
    Evaluator arm;   // anew from each firing
    Evaluator idle;  // cannot fire: for its answers
  };
  std::size_t wait_to_arm(Unarmed& unarmed, std::span<const Block> scope, std::size_t from, PolicyAnswers& out);
  std::size_t wait_to_fire(std::span<const Block> scope, std::size_t from, PolicyAnswers& out);

  Evaluator idle_;                // judges while armed, anew from each arming
  std::vector<Unarmed> unarmed_;  // one where the policy has an arming rule, else none: most have none
  Timeline timeline_;
  struct Scratch {
    std::vector<Block> piece;
    PolicyAnswers part{};  // of a piece
  };
  std::shared_ptr<Scratch> scratch_ = std::make_shared<Scratch>();
  bool rearm_ = false;
  bool armed_ = true;
  bool inside_ = false;  // the newest sample was yes, and its stretch has fired
};

}  // namespace lull
