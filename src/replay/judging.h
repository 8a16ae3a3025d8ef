#pragma once
// Judging takes the blocks of a trace and runs the policies of a replay over them in
// one go: their stretches, what fired, what was reclaimed and regretted. When something
// fires is decided by the engine, as live (engine/decider.h).
//
// It takes as many GPUs at a time as it has memory for. What the trace does not tell
// at once (a GPU's interval, the very first moment) is guessed and looked at again at
// the end: if a guess would have made a difference, the trace is read once more.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "engine/decider.h"
#include "replay/intervals.h"
#include "replay/job_spans.h"
#include "replay/replay.h"
#include "replay/resample.h"
#include "replay/survival.h"
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
  Per per = Per::gpu;
  std::vector<std::string> except_users;        // whose jobs are left out
  std::size_t gpus = 0;                         // together: how many
  std::vector<trace::Paced> gaps;               // together: what is a gap of each, and last of all together
  std::vector<std::size_t> pace;                // together: the place of each among all by its interval; 0: it has none
  bool who = false;                             // blocks say who has the GPU
  std::vector<std::vector<std::size_t>> hosts;  // Per::host: the GPUs of each
  std::vector<std::string> host_names;
  std::vector<std::string> host_of;  // Per::job: of each GPU
  SampledTime sampled;               // together: of all GPUs
};

class Judging final : public trace::TraceSink {
 public:
  explicit Judging(JudgingOptions options);

  void restart() override;
  bool wants(std::size_t gpu) override;
  void next_part() override { conclude(); }
  void meet(const trace::Holders& holders) override { holders_.meet(holders); }
  void block(std::size_t gpu, const Block& block) override;
  void frames(std::span<const Block> gpus) override;

  // As many policies as there is memory for, from one on, in the next reading; returns the one behind the last.
  std::size_t take_policies(std::size_t from);

  // After a reading. The gaps that were guessed are those that the true medians give. Else: survey, tell, read again.
  bool guessed_gaps();
  void know_gaps(std::vector<trace::Paced> gaps) { known_gaps_ = std::move(gaps); }
  // Likewise the memory that each GPU has in use when empty. Else it is known now: read again.
  bool guessed_levels() { return levels_.settle(); }
  // The start was the right one. Else it is now: read again.
  bool guessed_start();

  ReplayResult finish(trace::TraceReport report);

 private:
  // One policy on one GPU (or on all together).
  struct Trial {
    Decider decider;
    StretchFinder stretches = {};
    Fate fate = {};  // of the span that is under way
    // Judges this span alone. None: the span began with the trace, and the one above is its own.
    std::unique_ptr<Decider> of_life = {};
  };
  // What is judged by itself: a GPU, or several together.
  struct Gpu {
    Intervals intervals;
    SpanFinder spans;
    Accounts accounts;
    std::vector<Trial> trials;
    std::unique_ptr<Resampler> resampler;
    Totals totals;                     // of the rule as given
    std::vector<std::size_t> members;  // the GPUs
    Duration judged_gap{};
    const trace::Paced* gaps = nullptr;  // what is a gap, where that changes
    float holder = kUnknownSample;       // Per::job
    bool met = false;                    // a sample has been seen
    bool living = false;                 // a span is under way
  };
  // What stays of a GPU when its trials are over.
  struct Outcome {
    Duration seen{};
    Duration missed{};
    Duration gap{};
    Totals totals;
  };

  bool shows_job_spans() const;
  const std::vector<Decider>& fresh_for(std::size_t gpus);
  Gpu make_gpu(std::int64_t gap, std::vector<std::size_t> members);
  std::int64_t guess_gap(std::size_t index, const Block& first) const;
  void use_gap(Gpu& gpu, std::int64_t gap) const;
  const trace::Paced& together_gaps(std::span<const std::size_t> members) const;
  Gpu make_group(std::vector<std::size_t> members);
  void take(Gpu& gpu, std::size_t index, std::span<const Block> scope);
  void take_part(Gpu& gpu, std::size_t index, std::span<const Block> scope);
  void count_whole_work(std::span<const Block> gpus);
  void judge(Gpu& gpu, std::size_t index, std::span<const Block> scope);
  void find_job_spans(Gpu& gpu, std::span<const Block> all);
  void follow(Gpu& gpu, std::size_t index, std::size_t trial, std::span<const Block> all, std::size_t skipped);
  void follow_piece(Gpu& gpu, std::size_t number, const Piece& piece, std::span<const Block> all, std::size_t skipped);
  void end_life(Totals& totals, Trial& trial, std::size_t policy, std::size_t index, Leaving how);
  bool is_left_out(float holder) const;
  void picture(const Gpu& gpu, std::span<const Block> scope);
  void frames_by_job(std::span<const Block> gpus);
  void renew_jobs();
  void take_over(Gpu& old, std::size_t index, Gpu& fresh);
  void finish_job(std::size_t job);
  std::span<const Block> with_rows(std::span<const Block> gpus, const Gpu& of, std::size_t from, std::size_t to);
  std::span<const Block> behind_delay(std::span<const Block> scope);
  void count(Totals& totals, std::size_t policy, std::size_t gpu, std::size_t scope);
  std::size_t index_of_subject(std::size_t i) const { return options_.per == Per::all ? kAllGpus : i; }
  void finish_trials(Gpu& gpu, std::size_t index, StretchEnd ending, Leaving how);
  void conclude();  // the GPUs so far have had all their samples
  void note_time(std::span<const Instant> at);

  JudgingOptions options_;
  std::map<std::size_t, std::vector<Decider>> fresh_;  // of the policies in this reading, by how many GPUs
  std::size_t taken_ = 0;                              // policies in this reading
  std::size_t first_policy_ = 0;
  std::size_t bytes_each_ = 0;  // of a GPU
  std::size_t wanted_ = 0;      // GPUs in this part
  std::vector<trace::Paced> known_gaps_;
  bool right_gaps_ = true;
  std::vector<std::unique_ptr<Gpu>> gpus_;  // what is judged by itself
  std::vector<Outcome> outcomes_;
  std::vector<Totals> totals_;  // of each policy
  std::vector<WorkedBy> worked_by_;
  LossIntervals intervals_;
  std::vector<std::vector<LossIntervals::Loss>> losses_;  // of each policy
  std::vector<Strip> strips_;
  std::size_t columns_each_ = 0;
  std::vector<Firing> firings_;
  PolicyAnswers answers_{};
  Answers condition_{};  // of the rule as given, for the picture
  std::vector<Block> rest_;
  std::vector<Stretch> ended_;
  trace::KnownHolders holders_;
  Duration shortest_{};  // that any policy asks for
  std::vector<Piece> pieces_;
  std::vector<Block> part_;  // of a span
  PolicyAnswers part_answers_{};
  std::vector<std::vector<End>> ends_;  // of each policy
  std::size_t other_ends_ = 0;          // of all but the rule as given
  std::optional<JobFinder> jobs_;       // Per::job
  std::optional<Accounts> whole_;       // Per::job: of all GPUs, held or not
  double whole_work_ = 0;
  std::uint64_t left_out_ = 0;  // jobs
  std::vector<Together> subjects_;
  std::vector<Block> chosen_;  // of what is judged together
  std::vector<Block> paced_;   // the part of it that has one sampling interval
  std::vector<Instant> chosen_at_;
  std::vector<float> chosen_columns_;
  SampledTime sampled_;
  EmptyLevels levels_;
  std::optional<Instant> first_;
  Instant last_{};
};

}  // namespace lull::replay
