#pragma once
// Judging takes the blocks of a trace and runs every policy of a replay over them in
// one go: its stretches, what fired, what was reclaimed and regretted. The deciding
// itself is that of rule/, the same as live.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "replay/intervals.h"
#include "replay/replay.h"
#include "rule/policy.h"
#include "rule/stretch.h"
#include "trace/reader.h"

namespace lull::replay {

struct JudgingOptions {
  std::vector<Policy> policies;  // the rule as given, then the combinations of the sweep
  Duration regret{};
  WhenMissing missing = WhenMissing::unknown;
  std::size_t most_firings = 0;
  std::optional<Duration> gap;  // as the user gave it
  std::size_t picture_columns = 0;
  std::vector<Metric> pictured;
  std::size_t gpus = 0;     // together: how many
  Duration together_gap{};  // and what is a gap between their ticks
};

class Judging final : public trace::TraceSink {
 public:
  explicit Judging(JudgingOptions options);

  void restart() override;
  void block(std::size_t gpu, const Block& block) override;
  void frames(std::span<const Block> gpus) override;

  // The gaps that were guessed are those that the true medians give. Else: survey, tell, read again.
  bool guessed_right();
  void know_gaps(std::vector<std::int64_t> gaps) { known_gaps_ = std::move(gaps); }

  ReplayResult finish(trace::TraceReport report);

 private:
  // One policy on one GPU (or on all together).
  struct Trial {
    PolicyEvaluator evaluator;
    StretchFinder stretches;
    Totals totals;
  };
  struct Gpu {
    Intervals intervals;
    std::vector<Trial> trials;
    std::uint64_t samples = 0;
  };

  Gpu make_gpu(std::size_t index, const Block& first, std::size_t gpus);
  std::int64_t guess_gap(std::size_t index, const Block& first) const;
  void judge(Gpu& gpu, std::size_t index, std::span<const Block> scope);
  void count(Totals& totals, std::size_t policy, std::size_t gpu);
  void note_time(std::span<const Instant> at);

  JudgingOptions options_;
  std::vector<std::int64_t> known_gaps_;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // together: one for all
  std::vector<Strip> strips_;
  std::vector<Firing> firings_;
  PolicyAnswers answers_{};
  Answers condition_{};  // of the rule as given, for the picture
  std::vector<Stretch> ended_;
  std::optional<Instant> first_;
  Instant last_{};
};

}  // namespace lull::replay
