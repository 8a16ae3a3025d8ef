#pragma once
// A Resampler turns the samples of a recording into those that a live command with an
// interval of its own would have taken: at the start, and then every so often. A value
// that is the account of a time (util, power) becomes the mean over the time since the
// sample before, and is unknown where less than nine tenths of that were recorded, as
// live; any other value is that of the moment, the newest one recorded until then. A
// recorded value stands for the time since the one before it, unless a gap lies there;
// and in a gap nothing is taken, but for a tick of which nine tenths lie before it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"
#include "gpu/metric.h"

namespace lull::replay {

class Resampler {
 public:
  struct Options {
    Instant start{};
    Duration every{};
    Duration max_gap{};  // of the recording
    std::vector<Metric> metrics;
    bool who = false;  // who has the GPU too, which is of the moment
    std::size_t gpus = 1;
  };
  explicit Resampler(Options options);

  // One block for each GPU, all of the same times. What comes out is handed on before this returns.
  using Take = std::function<void(std::span<const Block>)>;
  void feed(std::span<const Block> scope, const Take& take);

  void set_gap(Duration gap) { options_.max_gap = gap; }

  std::size_t bytes() const {
    return sizeof(Resampler) + cells_.size() * (sizeof(Cell) + kBlockSamples * sizeof(float));
  }

 private:
  struct Cell {                // one signal of one GPU
    double sum = 0;            // of value × ns since the last tick
    std::int64_t covered = 0;  // ns of that time with a known value
    float last = kUnknownSample;
  };

  void see(Instant at, std::span<const Block> scope, std::size_t i, const Take& take);
  void cover(std::int64_t from, std::int64_t to, std::span<const Block> scope, std::size_t i);
  void tick(const Take& take);
  void hand_on(const Take& take);
  Instant tick_from(Instant at) const;  // the first tick that is not before it

  std::size_t width() const { return options_.metrics.size() + (options_.who ? 1 : 0); }
  float value_at(const Block& block, std::size_t column, std::size_t i) const;

  Options options_;
  std::optional<Instant> last_;  // recorded
  Instant tick_{};               // the next one
  bool first_ = true;            // nothing has been taken yet
  std::vector<Cell> cells_;      // GPU by GPU
  std::vector<Instant> at_;
  std::vector<float> columns_;  // kBlockSamples of each cell
  std::vector<Block> blocks_;
};

}  // namespace lull::replay
