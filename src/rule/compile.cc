// Rule tree -> the evaluator's program: postfix instructions on a stack of registers.
// any(CONDITION) and all(CONDITION) are written out once for each GPU.

#include <algorithm>
#include <cmath>
#include <limits>

#include "rule/evaluator.h"

namespace lull {

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

}  // namespace lull
