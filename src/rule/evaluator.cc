#include "rule/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "rule/compare.h"

namespace lull {
namespace {

// Kleene's and, or; and the same where an unknown side is left out of the judgement.
void both(Answers& out, const Answers& more, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    out.yes[w] &= more.yes[w];
    out.no[w] |= more.no[w];
  }
}
void either(Answers& out, const Answers& more, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    out.yes[w] |= more.yes[w];
    out.no[w] &= more.no[w];
  }
}
void both_of_known(Answers& out, const Answers& more, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    out.no[w] |= more.no[w];
    out.yes[w] = (out.yes[w] | more.yes[w]) & ~out.no[w];
  }
}
void either_of_known(Answers& out, const Answers& more, std::size_t words) {
  for (std::size_t w = 0; w < words; ++w) {
    out.yes[w] |= more.yes[w];
    out.no[w] = (out.no[w] | more.no[w]) & ~out.yes[w];
  }
}
void fold(Answers& out, const Answers& more, std::size_t words, bool any, bool ignore_missing) {
  if (ignore_missing)
    any ? either_of_known(out, more, words) : both_of_known(out, more, words);
  else
    any ? either(out, more, words) : both(out, more, words);
}

void copy(const Answers& from, Answers& to, std::size_t words) {
  std::copy_n(from.yes.begin(), words, to.yes.begin());
  std::copy_n(from.no.begin(), words, to.no.begin());
}
void clear(Answers& out, std::size_t words) {
  std::fill_n(out.yes.begin(), words, Word{0});
  std::fill_n(out.no.begin(), words, Word{0});
}

}  // namespace

Result<> Evaluator::fits(std::span<const Block> scope) const {
  if (scope.size() != gpus_) return fail(fmt::format("{} blocks for {} GPUs in scope", scope.size(), gpus_));
  if (scope.empty()) return {};
  const std::span<const Instant> at = scope[0].at;
  if (at.size() > kBlockSamples) return fail(fmt::format("a block of {} samples; {} fit", at.size(), kBlockSamples));
  if (at.empty()) return {};
  for (const Block& block : scope) {
    if (block.at.size() != at.size() || block.at.front() != at.front() || block.at.back() != at.back())
      return fail("the blocks of a scope are not of the same samples");
    for (const Metric metric : shared_->signals)
      if (!block[metric].empty() && block[metric].size() != at.size())
        return fail(fmt::format("{} values of {} for {} samples", block[metric].size(), info(metric).name, at.size()));
  }
  return {};
}

// The values that an instruction compares: a column as it is, or one made of it in `scratch`.
std::span<const float> Evaluator::column(const Instruction& instruction, std::span<const Block> scope,
                                         std::uint32_t gpu, const Mask& gaps, float* scratch) {
  const Block& block = scope[gpu];
  std::span<const float> values = block[instruction.metric];
  if (instruction.share) {
    const std::span<const float> whole = block[instruction.whole];
    if (values.empty() || whole.empty()) {
      values = {};
    } else {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double percent = static_cast<double>(values[i]) * 100 / static_cast<double>(whole[i]);
        scratch[i] = whole[i] > 0 ? static_cast<float>(percent) : kUnknownSample;
      }
      values = {scratch, values.size()};
    }
  }
  if (instruction.state < 0) return values;
  WindowMean& window = windows_[static_cast<std::size_t>(instruction.state) + (gpu - instruction.first_gpu)];
  for (std::size_t i = 0; i < block.size(); ++i)
    scratch[i] = window.push(block.at[i], values.empty() ? kUnknownSample : values[i], bit(gaps, i));
  return {scratch, block.size()};
}

void Evaluator::compare(const Instruction& instruction, std::span<const Block> scope, const Mask& gaps, Answers& out) {
  const std::size_t samples = scope[0].size();
  const std::size_t words = words_for(samples);
  std::array<float, kBlockSamples> scratch;
  Answers one;
  for (std::uint32_t g = 0; g < instruction.gpus; ++g) {
    Answers& target = g == 0 ? out : one;
    const std::span<const float> values = column(instruction, scope, instruction.first_gpu + g, gaps, scratch.data());
    if (values.empty())
      clear(target, words);
    else
      compare_values(values.data(), samples, instruction.compare, instruction.limit, target.yes.data(),
                     target.no.data());
    if (g != 0) fold(out, one, words, instruction.any, ignore_missing_);
  }
}

void Evaluator::compare_mean(const Instruction& instruction, std::span<const Block> scope, const Mask& gaps,
                             Answers& out) {
  const std::size_t samples = scope[0].size();
  std::array<float, kBlockSamples> scratch;
  std::array<double, kBlockSamples> sum;
  std::array<std::uint32_t, kBlockSamples> known;
  std::fill_n(sum.begin(), samples, 0.0);
  std::fill_n(known.begin(), samples, 0U);
  for (std::uint32_t g = 0; g < instruction.gpus; ++g) {
    const std::span<const float> values = column(instruction, scope, instruction.first_gpu + g, gaps, scratch.data());
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (!std::isfinite(values[i])) continue;
      sum[i] += static_cast<double>(values[i]);
      ++known[i];
    }
  }
  for (std::size_t i = 0; i < samples; ++i) {
    const bool enough = ignore_missing_ ? known[i] > 0 : known[i] == instruction.gpus;
    scratch[i] = enough ? static_cast<float>(sum[i] / known[i]) : kUnknownSample;
  }
  compare_values(scratch.data(), samples, instruction.compare, instruction.limit, out.yes.data(), out.no.data());
}

Result<> Evaluator::feed(std::span<const Block> scope, Answers& rule, Answers* condition) {
  if (auto fit = fits(scope); !fit) return fit;
  if (scope.empty() || scope[0].at.empty()) {
    clear(rule, kWords);
    if (condition != nullptr) clear(*condition, kWords);
    return {};
  }
  const bool any_gap = TRY(timeline_.look(scope[0].at));
  timeline_.advance(scope[0].at, any_gap, shared_->gaps);
  run(scope, shared_->gaps, rule, condition);
  return {};
}

void Evaluator::run(std::span<const Block> scope, const Mask& gaps, Answers& rule, Answers* condition) {
  const std::size_t words = words_for(scope[0].size());
  newest_ = scope[0].at.back();
  const std::vector<Instruction>& program = shared_->program;
  Answers* top = shared_->registers.data();  // one below the first that is used
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Instruction& instruction = program[i];
    switch (instruction.op) {
      case Op::compare: compare(instruction, scope, gaps, *++top); break;
      case Op::compare_mean: compare_mean(instruction, scope, gaps, *++top); break;
      case Op::unknown: clear(*++top, words); break;
      case Op::negate: std::swap(top->yes, top->no); break;
      case Op::hold:
        if (condition != nullptr && root_held_ && i + 1 == program.size()) copy(*top, *condition, words);
        holds_[static_cast<std::size_t>(instruction.state)].apply(scope[0].at, gaps, *top);
        break;
      case Op::both:
        both(top[-1], top[0], words);
        --top;
        break;
      case Op::either:
        either(top[-1], top[0], words);
        --top;
        break;
      case Op::each_all:
      case Op::each_any:
        fold(top[-1], top[0], words, instruction.op == Op::each_any, ignore_missing_);
        --top;
        break;
    }
  }
  copy(*top, rule, words);
  if (condition != nullptr && !root_held_) copy(*top, *condition, words);
}

void Evaluator::reset() {
  for (Hold& hold : holds_) hold.reset();
  for (WindowMean& window : windows_) window.reset();
  timeline_.reset();
}

std::size_t Evaluator::bytes() const {
  std::size_t bytes = sizeof(Evaluator) + holds_.size() * sizeof(Hold);
  for (const WindowMean& window : windows_) bytes += window.bytes();
  return bytes;
}

Progress Evaluator::progress_of(const Hold& hold) const {
  if (!hold.running()) return {};
  const Instant since{Duration(hold.since())};
  return {.running = true, .since = since, .held = newest_ - since, .samples = hold.samples()};
}

Progress Evaluator::progress() const { return root_held_ ? progress_of(holds_.back()) : Progress{}; }

Progress Evaluator::shortest_streak() const {
  Progress shortest;
  for (const Hold& hold : holds_)
    if (hold.running() && (!shortest.running || hold.since() > shortest.since.time_since_epoch().count()))
      shortest = progress_of(hold);
  return shortest;
}

bool Evaluator::any_streak_inside() const {
  const auto inside = std::span(holds_).first(holds_.size() - (root_held_ ? 1 : 0));
  return std::ranges::any_of(inside, &Hold::running);
}

}  // namespace lull
