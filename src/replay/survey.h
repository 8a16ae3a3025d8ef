#pragma once
// What has to be known of a trace before it is judged: whether it has what a rule looks
// at, and how far apart the samples of each GPU are.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gpu/power_learner.h"
#include "replay/intervals.h"
#include "rule/rule.h"
#include "trace/prometheus_fetch.h"
#include "trace/reader.h"

namespace lull::replay {

// Which traces are read, and how: what `lull replay` and `lull report` have in common.
struct TracesToRead {
  std::vector<std::string> paths;  // a folder stands for its days (trace/history.h)
  TimeRange range;
  std::vector<trace::ColumnChoice> columns;
  std::optional<Duration> gap;    // else longest_gap() of the median interval, or of `every`
  std::optional<Duration> every;  // of a trace without times: how far apart its samples are
  unsigned threads = 0;
  std::function<void(double part)> progress;
  std::optional<trace::PrometheusQuery> prometheus;  // then there are no paths
};
// Of the `wanted` signals those are read that it has; one of the `needed` that it lacks is said with the recording that
// would have it. Signals that are learned count as what they are learned from.
Result<trace::TraceReader> open_traces(const TracesToRead& traces, std::vector<Metric> wanted,
                                       const std::vector<Metric>& needed, std::size_t memory);

// A signal of the user's own that the trace lacks is unknown in it; that is said once, in the report's notes.
void note_missing_own(const std::vector<Metric>& needed, const trace::TraceReader& reader, trace::TraceReport& report);

// How far apart the samples of a GPU are.
struct Sampling {
  std::int64_t twice_median = 0;  // 0: there is no interval
  trace::Paced interval;
  SampledTime time = {};  // with gaps
};
// Of each GPU. Reads the trace as often as that takes.
Result<std::vector<Sampling>> survey(trace::TraceReader& reader, trace::TraceReport* report = nullptr);
// The names of the files, in short.
std::string name_of(const TracesToRead& traces);

// What a trace must have for these signals. Whoever learns does without the limit.
std::vector<Metric> must_have(const std::vector<Metric>& signals);

// Learns what each card of a trace draws while it is read, and hands the blocks on with the signals that come of it
// (gpu/power_learner.h). What is said of a sample rests on those before it alone, as live.
class Learning final : public trace::TraceSink {
 public:
  explicit Learning(trace::TraceSink& next) : next_(next) {}

  void restart() override {
    gpus_.clear();
    next_.restart();
  }
  bool wants(std::size_t gpu) override { return next_.wants(gpu); }
  void next_part() override {
    gpus_.clear();
    next_.next_part();
  }
  void meet(const trace::Holders& holders) override { next_.meet(holders); }
  void idle_looks_hung(std::size_t gpu) override { at(gpu).looks_hung = true; }
  void block(std::size_t gpu, const Block& block) override;
  void frames(std::span<const Block> gpus) override;

 private:
  struct Gpu {
    PowerLearner learner;
    LearnedColumns columns;
    bool looks_hung = false;  // idle
    Block add(const Block& block) { return columns.add(learner, block, looks_hung); }
  };
  Gpu& at(std::size_t gpu);

  trace::TraceSink& next_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<Block> blocks_;
};

}  // namespace lull::replay
