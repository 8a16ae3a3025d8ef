#include "engine/decider.h"

namespace lull {
namespace {

void set(Mask& mask, std::size_t sample, bool to) {
  const Word one = Word{1} << (sample % kWordSamples);
  Word& word = mask[sample / kWordSamples];
  word = to ? word | one : word & ~one;
}

}  // namespace

// The first value of all is of the moment: nothing before it was seen, so it does not act alone. The second one does
// for it, if that is still a yes.
Result<> Decider::feed(std::span<const Block> scope, PolicyAnswers& out) {
  TRY(evaluator_.feed(scope, out));
  const std::size_t samples = scope.empty() ? 0 : scope[0].size();
  if (samples == 0) return {};
  std::size_t second = 0;
  if (!begun_) {
    begun_ = true;
    put_off_ = bit(out.fires, 0);
    set(out.fires, 0, false);
    second = 1;
  }
  if (!put_off_ || second >= samples) return {};
  if (bit(out.rule.yes, second)) set(out.fires, second, true);
  put_off_ = false;
  return {};
}

void Decider::follow(const Decider& before) {
  begun_ = before.begun_;
  if (before.evaluator_.armed()) evaluator_.arm();
}

}  // namespace lull
