#pragma once
// An Evaluator answers a rule for every sample of a series, block by block. It is
// pure: its only input is the blocks, its only state what it has seen. It never
// allocates after compile(). For any way of cutting a series into blocks the
// answers are equal. A copy judges another series by the same rule: it has a state
// of its own, which is small, and shares the program and the scratch memory, so
// copies are for one thread.
//
// Main invariant (property-tested): replacing any reading by unknown can only turn answers
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
#include "rule/rule.h"
#include "rule/timeline.h"
#include "rule/truth.h"
#include "rule/window.h"

namespace lull {

// "… for 20m", "… for 5 samples": has a condition been yes, without a break, for so
// long? A sample that is not yes, and a gap between two samples, break the streak.
//
//   yes      the condition is yes, and has been since a sample at least `time` ago
//            (or for at least `samples` samples, this one included)
//   no       the condition is no; or it is yes, but was seen to turn from no to yes
//            more recently than that
//   unknown  the condition is unknown; or it is yes, but what lay before the streak
//            was not seen (the beginning, a gap, an unknown), so it may have been longer
//
// So neither a streak nor its absence is ever concluded from what was not seen.
class Hold {
 public:
  explicit Hold(Span span) : span_(span) {}

  // Turns the answers to the condition into the answers to "held", in place.
  // `gaps`: bit set where a gap lies before the sample. `counts`: these are samples that `for N samples` counts; others
  // break a streak and make it last, but it takes as many more.
  void apply(std::span<const Instant> at, const Mask& gaps, Answers& answers, bool counts = true);
  void reset() { running_ = previous_no_ = false; }

  bool running() const { return running_; }
  std::int64_t since() const { return since_; }
  std::uint64_t samples() const { return samples_; }

 private:
  std::size_t first_held(const Instant* at, std::size_t from, std::size_t to, bool counts) const;

  Span span_;
  bool running_ = false;
  bool grounded_ = false;     // the sample before the streak was a definite no
  bool previous_no_ = false;  // the newest sample was one
  std::int64_t since_ = 0;    // ns of the streak's first sample
  std::uint64_t samples_ = 0;
};

// A GPU that gives no value: makes all(…) unknown, or is left out of the judgement.
enum class WhenMissing : std::uint8_t { unknown, ignore };
// The value of --missing; `option` names it in the error.
Result<WhenMissing> missing_option(std::string_view text, std::string_view option = "--missing");

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
  // Whether the samples that come are of those that `for N samples` counts (Hold::apply).
  void count(bool counts) { counts_ = counts; }

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
    bool any = false;        // of the GPUs; else all
    bool share = false;      // of `whole`
    bool over_idle = false;  // less the card's idle power
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
  bool counts_ = true;
  Instant newest_{};
  Timeline timeline_;
};

}  // namespace lull
