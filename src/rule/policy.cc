#include "rule/policy.h"

#include <algorithm>
#include <bit>

namespace lull {
namespace {

// The `count` lowest bits of `from` become bits [offset, offset + count) of `to`.
void splice(const Mask& from, std::size_t count, std::size_t offset, Mask& to) {
  for (std::size_t w = 0; w < words_for(count); ++w) {
    const Word keep = low_bits(std::min(kWordSamples, count - w * kWordSamples));
    const std::size_t at = offset + w * kWordSamples;
    const std::size_t shift = at % kWordSamples;
    Word& low = to[at / kWordSamples];
    low = (low & ~(keep << shift)) | ((from[w] & keep) << shift);
    if (shift == 0 || keep >> (kWordSamples - shift) == 0) continue;
    Word& high = to[at / kWordSamples + 1];
    high = (high & ~(keep >> (kWordSamples - shift))) | ((from[w] & keep) >> (kWordSamples - shift));
  }
}

void splice(const Answers& from, std::size_t count, std::size_t offset, Answers& to) {
  splice(from.yes, count, offset, to.yes);
  splice(from.no, count, offset, to.no);
}

// The mask without its `skip` lowest bits.
Mask behind(const Mask& mask, std::size_t skip) {
  Mask out{};
  const std::size_t words = skip / kWordSamples;
  const std::size_t shift = skip % kWordSamples;
  for (std::size_t w = words; w < kWords; ++w) {
    out[w - words] = mask[w] >> shift;
    if (shift != 0 && w + 1 < kWords) out[w - words] |= mask[w + 1] << (kWordSamples - shift);
  }
  return out;
}

void set_bit(Mask& mask, std::size_t sample) { mask[sample / kWordSamples] |= Word{1} << (sample % kWordSamples); }
void clear_bit(Mask& mask, std::size_t sample) { mask[sample / kWordSamples] &= ~(Word{1} << (sample % kWordSamples)); }

std::size_t first_bit(const Mask& mask, std::size_t count) {
  for (std::size_t w = 0; w < words_for(count); ++w)
    if (mask[w] != 0) return std::min(count, w * kWordSamples + static_cast<std::size_t>(std::countr_zero(mask[w])));
  return count;
}

// The first sample of every run of yes; a gap begins a new run.
void run_starts(const Mask& yes, const Mask& gaps, std::size_t count, bool& inside, Mask& out) {
  for (std::size_t w = 0; w < words_for(count); ++w) {
    const Word before = yes[w] << 1 | Word{inside};
    out[w] = yes[w] & (~before | gaps[w]);
    const std::size_t last = std::min(kWordSamples, count - w * kWordSamples) - 1;
    inside = (yes[w] >> last & 1) != 0;
  }
}

}  // namespace

Result<Policy> Policy::parse(std::string_view idle, std::optional<std::string_view> arm) {
  Policy policy{.idle = TRY(parse_rule(idle))};
  if (arm) policy.arm = TRY(parse_rule(*arm));
  return policy;
}

PolicyEvaluator PolicyEvaluator::compile(const Policy& policy, const EvaluatorOptions& options) {
  PolicyEvaluator evaluator(Evaluator::compile(policy.idle, options));
  evaluator.timeline_ = Timeline(options.gap());
  evaluator.scratch_->piece.resize(options.gpus);
  if (policy.arm) {
    evaluator.unarmed_.push_back({Evaluator::compile(*policy.arm, options), Evaluator::compile(policy.idle, options)});
    evaluator.armed_ = false;
    evaluator.rearm_ = policy.rearm;
  }
  return evaluator;
}

PolicyEvaluator PolicyEvaluator::for_gap(Duration max_gap) const {
  PolicyEvaluator copy = *this;
  copy.timeline_ = Timeline(max_gap);
  return copy;
}

void PolicyEvaluator::arm() {
  if (armed_) return;
  armed_ = true;
  inside_ = false;
  idle_.reset();
}

// The samples of a scope from one on, as blocks of their own.
std::span<const Block> PolicyEvaluator::piece(std::span<const Block> scope, std::size_t from) {
  if (from == 0) return scope;
  std::vector<Block>& pieces = scratch_->piece;
  for (std::size_t g = 0; g < scope.size(); ++g) {
    pieces[g].at = scope[g].at.subspan(from);
    for (std::size_t m = 0; m < kMetrics; ++m) {
      const std::span<const float> column = scope[g].value[m];
      pieces[g].value[m] = column.empty() ? column : column.subspan(from);
    }
  }
  return pieces;
}

const Mask& PolicyEvaluator::gaps_from(const Mask& gaps, std::size_t from) {
  if (from == 0) return gaps;
  scratch_->part.gaps = behind(gaps, from);
  return scratch_->part.gaps;
}

std::size_t PolicyEvaluator::bytes() const {
  std::size_t bytes = sizeof(PolicyEvaluator) - sizeof(Evaluator) + idle_.bytes();
  for (const Unarmed& unarmed : unarmed_) bytes += unarmed.arm.bytes() + unarmed.idle.bytes();
  return bytes;
}

// Looks for the sample that arms. Returns the first sample that has not been dealt with.
std::size_t PolicyEvaluator::wait_to_arm(Unarmed& unarmed, std::span<const Block> scope, std::size_t from,
                                         PolicyAnswers& out) {
  const std::size_t count = scope[0].size() - from;
  const std::span<const Block> rest = piece(scope, from);
  const Mask& gaps = gaps_from(out.gaps, from);
  PolicyAnswers& part = scratch_->part;
  unarmed.arm.run(rest, gaps, part.rule, nullptr);
  const std::size_t armed_at = first_bit(part.rule.yes, count);
  const std::size_t done = std::min(count, armed_at + 1);
  std::fill_n(part.armed.begin(), words_for(count), Word{0});
  std::fill_n(part.fires.begin(), words_for(count), Word{0});
  if (armed_at < count) {
    set_bit(part.armed, armed_at);
    arm();
  }
  splice(part.armed, done, from, out.armed);
  splice(part.fires, done, from, out.fires);
  if (!rearm_) {  // else feed() has asked it already
    unarmed.idle.run(rest, gaps, part.rule, &part.condition);
    splice(part.rule, done, from, out.rule);
    splice(part.condition, done, from, out.condition);
  }
  return from + done;
}

// Judges from the sample behind the arming one on. Returns as wait_to_arm().
std::size_t PolicyEvaluator::wait_to_fire(std::span<const Block> scope, std::size_t from, PolicyAnswers& out) {
  const std::size_t count = scope[0].size() - from;
  const std::span<const Block> rest = piece(scope, from);
  const Mask& gaps = gaps_from(out.gaps, from);
  PolicyAnswers& part = scratch_->part;
  PolicyAnswers& answers = from == 0 && !rearm_ ? out : part;
  idle_.run(rest, gaps, answers.rule, &answers.condition);
  run_starts(answers.rule.yes, gaps, count, inside_, answers.fires);
  for (std::size_t w = 0; w < words_for(count); ++w)
    answers.armed[w] = low_bits(std::min(kWordSamples, count - w * kWordSamples));
  if (&answers == &out) return from + count;

  std::size_t done = count;
  if (const std::size_t fired_at = first_bit(part.fires, count); rearm_ && fired_at < count) {
    done = fired_at + 1;
    clear_bit(part.armed, fired_at);
    armed_ = false;
    unarmed_.front().arm.reset();
  }
  splice(part.rule, done, from, out.rule);
  splice(part.condition, done, from, out.condition);
  splice(part.armed, done, from, out.armed);
  splice(part.fires, done, from, out.fires);
  return from + done;
}

void PolicyEvaluator::count(bool counts) {
  idle_.count(counts);
  for (Unarmed& unarmed : unarmed_) {
    unarmed.arm.count(counts);
    unarmed.idle.count(counts);
  }
}

Result<> PolicyEvaluator::feed(std::span<const Block> scope, PolicyAnswers& out) {
  if (auto fit = idle_.fits(scope); !fit) return fit;
  if (!unarmed_.empty())
    if (auto fit = unarmed_.front().arm.fits(scope); !fit) return fit;
  const std::size_t samples = scope.empty() ? 0 : scope[0].size();
  if (samples == 0) return {};
  const bool any_gap = TRY(timeline_.look(scope[0].at));
  timeline_.advance(scope[0].at, any_gap, out.gaps);
  // Behind a firing the idle rule goes on being answered while nothing is armed.
  if (rearm_) unarmed_.front().idle.run(scope, out.gaps, out.rule, &out.condition);
  for (std::size_t from = 0; from < samples;)
    from = waits_to_arm() ? wait_to_arm(unarmed_.front(), scope, from, out) : wait_to_fire(scope, from, out);
  return {};
}

}  // namespace lull
