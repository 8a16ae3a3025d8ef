#include "rule/evaluator.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "base/units.h"
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
  } else if (instruction.over_idle) {
    const std::span<const float> idle = block[Metric::idle_power];
    if (values.empty() || idle.empty()) {
      values = {};
    } else {
      for (std::size_t i = 0; i < values.size(); ++i) scratch[i] = values[i] - idle[i];
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
        holds_[static_cast<std::size_t>(instruction.state)].apply(scope[0].at, gaps, *top, counts_);
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

namespace {

std::int64_t nanoseconds(Instant at) { return at.time_since_epoch().count(); }
// Times only go forward here; unsigned, so that no distance overflows.
std::uint64_t between(std::int64_t from, Instant to) {
  return static_cast<std::uint64_t>(nanoseconds(to)) - static_cast<std::uint64_t>(from);
}
Word bits_between(std::size_t from, std::size_t to) { return low_bits(to) & ~low_bits(from); }

}  // namespace

// The first sample in [from, to) at which the running streak is long enough, or `to`.
std::size_t Hold::first_held(const Instant* at, std::size_t from, std::size_t to, bool counts) const {
  if (span_.samples != 0) {
    if (!counts) return samples_ >= span_.samples ? from : to;
    const std::uint64_t lacking = span_.samples > samples_ ? span_.samples - samples_ - 1 : 0;
    return lacking < to - from ? from + static_cast<std::size_t>(lacking) : to;
  }
  const auto needed = static_cast<std::uint64_t>(span_.time.count());
  if (between(since_, at[from]) >= needed) return from;
  if (between(since_, at[to - 1]) < needed) return to;
  const Instant* due = std::partition_point(at + from, at + to, [&](Instant t) { return between(since_, t) < needed; });
  return static_cast<std::size_t>(due - at);
}

void Hold::apply(std::span<const Instant> at, const Mask& gaps, Answers& answers, bool counts) {
  for (std::size_t w = 0; w < words_for(at.size()); ++w) {
    const Instant* time = at.data() + w * kWordSamples;
    const std::size_t count = std::min(kWordSamples, at.size() - w * kWordSamples);
    const Word yes = answers.yes[w];
    const Word no = answers.no[w];
    const Word gap = gaps[w];
    Word held = 0;
    Word too_short = 0;
    for (std::size_t i = 0; i < count;) {
      const Word rest = yes >> i;
      if ((rest & 1) == 0) {
        const std::size_t end = rest == 0 ? count : i + static_cast<std::size_t>(std::countr_zero(rest));
        running_ = false;
        previous_no_ = (no >> (end - 1) & 1) != 0;
        i = end;
        continue;
      }
      if ((gap >> i & 1) != 0) running_ = previous_no_ = false;
      std::size_t end = std::min(count, i + static_cast<std::size_t>(std::countr_one(rest)));
      if (const Word later = gap & ~low_bits(i + 1); later != 0)
        end = std::min(end, static_cast<std::size_t>(std::countr_zero(later)));
      if (!running_) {
        running_ = true;
        grounded_ = previous_no_;
        since_ = nanoseconds(time[i]);
        samples_ = 0;
      }
      const std::size_t from = first_held(time, i, end, counts);
      held |= bits_between(from, end);
      if (grounded_) too_short |= bits_between(i, from);
      if (counts) samples_ += end - i;
      previous_no_ = false;
      i = end;
    }
    answers.yes[w] = held;
    answers.no[w] = no | too_short;
  }
}

// Rule tree -> the evaluator's program: postfix instructions on a stack of registers.
// any(CONDITION) and all(CONDITION) are written out once for each GPU.

class Compiler {
 public:
  Compiler(const Rule& rule, const EvaluatorOptions& options, Evaluator& out)
      : rule_(rule), gpus_(static_cast<std::uint32_t>(options.gpus)), out_(out) {}

  void compile() {
    if (rule_.nodes.empty() || gpus_ == 0) {
      push({.op = Op::unknown});
      return;
    }
    node(rule_.root(), 0, gpus_);
    out_.root_held_ = std::holds_alternative<Held>(rule_[rule_.root()]);
    out_.shared_->signals = rule_.signals();
  }

 private:
  using Op = Evaluator::Op;
  using Instruction = Evaluator::Instruction;

  void emit(Instruction instruction) { out_.shared_->program.push_back(instruction); }
  void push(Instruction instruction) {
    emit(instruction);
    depth_ += 1;
    std::vector<Answers>& registers = out_.shared_->registers;
    if (registers.size() <= depth_) registers.resize(depth_ + 1);
  }
  void join(Op op) {
    emit({.op = op});
    depth_ -= 1;
  }

  // The parser limits how deep a tree can be.
  void node(NodeId id, std::uint32_t first, std::uint32_t gpus) {
    std::visit([&](const auto& it) { write(it, first, gpus); }, rule_[id]);
  }
  void write(const And& it, std::uint32_t first, std::uint32_t gpus) {
    node(it.left, first, gpus);
    node(it.right, first, gpus);
    join(Op::both);
  }
  void write(const Or& it, std::uint32_t first, std::uint32_t gpus) {
    node(it.left, first, gpus);
    node(it.right, first, gpus);
    join(Op::either);
  }
  void write(const Not& it, std::uint32_t first, std::uint32_t gpus) {
    node(it.operand, first, gpus);
    emit({.op = Op::negate});
  }
  void write(const Held& it, std::uint32_t first, std::uint32_t gpus) {
    node(it.operand, first, gpus);
    out_.holds_.emplace_back(it.span);
    emit({.op = Op::hold, .state = static_cast<std::int32_t>(out_.holds_.size() - 1)});
  }
  void write(const Each& it, std::uint32_t first, std::uint32_t gpus) {
    for (std::uint32_t g = 0; g < gpus; ++g) {
      node(it.operand, first + g, 1);
      if (g > 0) join(it.all ? Op::each_all : Op::each_any);
    }
  }
  void write(const Comparison& it, std::uint32_t first, std::uint32_t gpus) {
    const bool largest = it.over == Over::max;
    if (!largest && it.over != Over::min) {
      leaf(it, it.compare, it.over == Over::any, first, gpus);
      return;
    }
    // The largest is below a limit if all are, above it if any is; and so on.
    switch (it.compare) {
      case Compare::below:
      case Compare::at_most: leaf(it, it.compare, !largest, first, gpus); break;
      case Compare::above:
      case Compare::at_least: leaf(it, it.compare, largest, first, gpus); break;
      case Compare::equal:
      case Compare::unequal:
        leaf(it, largest ? Compare::at_most : Compare::at_least, false, first, gpus);
        leaf(it, largest ? Compare::at_least : Compare::at_most, true, first, gpus);
        join(Op::both);
        if (it.compare == Compare::unequal) emit({.op = Op::negate});
        break;
    }
  }

  void leaf(const Comparison& it, Compare compare, bool any, std::uint32_t first, std::uint32_t gpus) {
    Instruction instruction{.op = it.over == Over::mean ? Op::compare_mean : Op::compare,
                            .compare = compare,
                            .any = any,
                            .share = it.share,
                            .over_idle = it.over_idle,
                            .metric = it.metric,
                            .whole = info(it.metric).whole.value_or(it.metric),
                            .limit = static_cast<float>(it.limit),
                            .first_gpu = first,
                            .gpus = gpus};
    if (it.window) {
      instruction.state = static_cast<std::int32_t>(out_.windows_.size());
      for (std::uint32_t g = 0; g < gpus; ++g) out_.windows_.emplace_back(*it.window);
    }
    push(instruction);
  }

  const Rule& rule_;
  std::uint32_t gpus_;
  Evaluator& out_;
  std::size_t depth_ = 0;
};

Evaluator Evaluator::compile(const Rule& rule, const EvaluatorOptions& options) {
  Evaluator evaluator;
  evaluator.gpus_ = options.gpus;
  evaluator.timeline_ = Timeline(options.gap());
  evaluator.ignore_missing_ = options.missing == WhenMissing::ignore;
  Compiler(rule, options, evaluator).compile();
  return evaluator;
}

Result<WhenMissing> missing_option(std::string_view text, std::string_view option) {
  constexpr std::array<std::string_view, 2> kMissing = {"unknown", "ignore"};
  return static_cast<WhenMissing>(TRY(choice_option(option, text, kMissing)));
}

}  // namespace lull
