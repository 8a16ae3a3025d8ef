#pragma once
// Judging takes the blocks of a trace and runs the policies of a replay over them in
// one go: their stretches, what fired, what was reclaimed and regretted. The deciding
// itself is that of rule/, the same as live; so is what surrounds it (engine/case.h):
// the gap, the delay at the start, and that a first sample never fires alone.
//
// It takes as many GPUs at a time as it has memory for. What the trace does not tell
// at once (a GPU's interval, the very first moment) is guessed and looked at again at
// the end: if a guess would have made a difference, the trace is read once more.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "replay/intervals.h"
#include "replay/replay.h"
#include "replay/resample.h"
#include "rule/policy.h"
#include "rule/stretch.h"
#include "trace/reader.h"

namespace lull::replay {

struct JudgingOptions {
  std::vector<Policy> policies;  // the rule as given, then the combinations of the sweep
  Duration regret{};
  WhenMissing missing = WhenMissing::unknown;
  std::size_t most_firings = 0;
  std::optional<Duration> gap;    // as the user gave it
  std::optional<Duration> every;  // judge as if sampled so often
  Duration delay{};               // nothing is judged before
  Instant start{};                // of the trace, as far as is known
  std::size_t memory = 0;
  std::vector<Metric> metrics;  // that the trace is read for
  std::size_t picture_columns = 0;
  std::vector<Metric> pictured;
  std::size_t gpus = 0;     // together: how many
  Duration together_gap{};  // and what is a gap between their ticks
};

class Judging final : public trace::TraceSink {
 public:
  explicit Judging(JudgingOptions options);

  void restart() override;
  bool wants(std::size_t gpu) override;
  void next_part() override { conclude(); }
  void block(std::size_t gpu, const Block& block) override;
  void frames(std::span<const Block> gpus) override;

  // As many policies as there is memory for, from one on, in the next reading; returns the one behind the last.
  std::size_t take_policies(std::size_t from);

  // After a reading. The gaps that were guessed are those that the true medians give. Else: survey, tell, read again.
  bool guessed_gaps();
  void know_gaps(std::vector<std::int64_t> gaps) { known_gaps_ = std::move(gaps); }
  // The start was the right one. Else it is now: read again.
  bool guessed_start();

  ReplayResult finish(trace::TraceReport report);

 private:
  // One policy on one GPU (or on all together).
  struct Trial {
    PolicyEvaluator evaluator;
    StretchFinder stretches = {};
    bool put_off = false;  // it would have fired on the first sample
  };
  struct Gpu {
    Intervals intervals;
    std::vector<Trial> trials;
    std::unique_ptr<Resampler> resampler;
    Totals totals;  // of the rule as given
    bool begun = false;
  };
  // What stays of a GPU when its trials are over.
  struct Outcome {
    Duration seen{};
    Duration gap{};
    Totals totals;
  };

  Gpu make_gpu(std::int64_t gap);
  std::int64_t guess_gap(std::size_t index, const Block& first) const;
  void take(Gpu& gpu, std::size_t index, std::span<const Block> scope);
  void judge(Gpu& gpu, std::size_t index, std::span<const Block> scope);
  void put_off_first(Gpu& gpu, Trial& trial, std::size_t samples);
  void picture(std::size_t index, std::span<const Block> scope);
  std::span<const Block> behind_delay(std::span<const Block> scope);
  void count(Totals& totals, std::size_t policy, std::size_t gpu);
  void conclude();  // the GPUs so far have had all their samples
  void note_time(std::span<const Instant> at);

  JudgingOptions options_;
  std::vector<PolicyEvaluator> fresh_;  // of the policies in this reading
  std::size_t first_policy_ = 0;
  std::size_t bytes_each_ = 0;  // of a GPU
  std::size_t wanted_ = 0;      // GPUs in this part
  std::vector<std::int64_t> known_gaps_;
  bool right_gaps_ = true;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // together: one for all
  std::vector<Outcome> outcomes_;
  std::vector<Totals> totals_;  // of each policy
  std::vector<Strip> strips_;
  std::size_t columns_each_ = 0;
  std::vector<Firing> firings_;
  PolicyAnswers answers_{};
  Answers condition_{};  // of the rule as given, for the picture
  std::vector<Block> rest_;
  std::vector<Stretch> ended_;
  std::optional<Instant> first_;
  Instant last_{};
};

}  // namespace lull::replay
