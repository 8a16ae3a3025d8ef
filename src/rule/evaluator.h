#pragma once
// An Evaluator answers a rule for every sample of a series, block by block. It is
// pure: its only input is the blocks, its only state what it has seen. It never
// allocates after compile(). For any way of cutting a series into blocks the
// answers are equal. A copy judges another series by the same rule: it has a state
// of its own, which is small, and shares the program and the scratch memory, so
// copies are for one thread.
//
// The law (property-tested): replacing any reading by unknown can only turn answers
// into unknown, never a no into a yes nor a yes into a no. docs/rules.md has the
// truth tables. With WhenMissing::ignore the user has waived this between GPUs.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/block.h"
#include "rule/hold.h"
#include "rule/rule.h"
#include "rule/timeline.h"
#include "rule/truth.h"
#include "rule/window.h"

namespace lull {

// A GPU that gives no value: makes all(…) unknown, or is left out of the judgement.
enum class WhenMissing : std::uint8_t { unknown, ignore };

struct EvaluatorOptions {
  std::size_t gpus = 1;
  Duration interval = std::chrono::seconds(1);  // how often samples are meant to come
  std::optional<Duration> max_gap = {};         // longer between two samples breaks a streak; else longest_gap()
  WhenMissing missing = WhenMissing::unknown;

  Duration gap() const { return max_gap ? *max_gap : longest_gap(interval); }
};

// How far the outermost `for` of a rule has come.
struct Progress {
  bool running = false;       // its condition is yes now
  Instant since{};            // of the first yes of the streak
  Duration held{};            // from that to the newest sample
  std::uint64_t samples = 0;  // in the streak
};

class Evaluator {
 public:
  static Evaluator compile(const Rule& rule, const EvaluatorOptions& options);

  // One block for each GPU in scope, all with the same `at`, in order of time.
  // `rule` gets the answer for every sample. `condition`, where wanted, gets that
  // of the rule without its outermost `for`: what a stretch of idleness is made of.
  // Refused with the state as it was: time that goes backwards, blocks that do not fit.
  Result<> feed(std::span<const Block> scope, Answers& rule, Answers* condition = nullptr);

  // Forgets everything: the next sample is the first.
  void reset();

  Progress progress() const;
  // Of every `for` in the rule whose condition is yes now, the one that began last: the rule has held at least since.
  Progress shortest_streak() const;
  bool any_streak_inside() const;  // a `for` that is not the outermost one is running
  std::size_t bytes() const;       // of memory that a copy takes

 private:
  friend class Compiler;
  friend class PolicyEvaluator;
  enum class Op : std::uint8_t { compare, compare_mean, both, either, negate, hold, each_all, each_any, unknown };
  struct Instruction {
    Op op = Op::compare;
    Compare compare = Compare::below;
    bool any = false;    // of the GPUs; else all
    bool share = false;  // of `whole`
    Metric metric = Metric::util;
    Metric whole = Metric::util;
    float limit = 0;
    std::uint32_t first_gpu = 0;
    std::uint32_t gpus = 0;
    std::int32_t state = -1;  // the hold, or the first of the windows (one a GPU); -1: none
  };

  Evaluator() = default;
  Progress progress_of(const Hold& hold) const;
  Result<> fits(std::span<const Block> scope) const;
  // The samples are known to fit and to be in order; the gaps are given.
  void run(std::span<const Block> scope, const Mask& gaps, Answers& rule, Answers* condition);
  std::span<const float> column(const Instruction& instruction, std::span<const Block> scope, std::uint32_t gpu,
                                const Mask& gaps, float* scratch);
  void compare(const Instruction& instruction, std::span<const Block> scope, const Mask& gaps, Answers& out);
  void compare_mean(const Instruction& instruction, std::span<const Block> scope, const Mask& gaps, Answers& out);

  struct Shared {
    std::vector<Instruction> program;  // in postfix order, on a stack of registers
    std::vector<Metric> signals;
    std::vector<Answers> registers;  // scratch
    Mask gaps{};                     // scratch
  };

  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::vector<Hold> holds_;
  std::vector<WindowMean> windows_;
  std::size_t gpus_ = 0;
  bool ignore_missing_ = false;
  bool root_held_ = false;
  Instant newest_{};
  Timeline timeline_;
};

}  // namespace lull
