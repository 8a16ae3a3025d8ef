#pragma once
// Learns what each card of a trace draws while it is read, and hands the blocks on with the signals that come of it
// (gpu/power_learner.h). What is said of a sample rests on those before it alone, as live.

#include <memory>
#include <span>
#include <vector>

#include "gpu/power_learner.h"
#include "rule/rule.h"
#include "trace/reader.h"

namespace lull::replay {

// What a trace must have for these signals. Whoever learns does without the limit.
std::vector<Metric> must_have(const std::vector<Metric>& signals);

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
  void is_rdna(std::size_t gpu) override { at(gpu).rdna = true; }
  void block(std::size_t gpu, const Block& block) override;
  void frames(std::span<const Block> gpus) override;

 private:
  struct Gpu {
    PowerLearner learner;
    LearnedColumns columns;
    bool rdna = false;
    Block add(const Block& block) { return columns.add(learner, block, rdna); }
  };
  Gpu& at(std::size_t gpu);

  trace::TraceSink& next_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<Block> blocks_;
};

}  // namespace lull::replay
