#pragma once
// A sampler whose samples come in through a loop, and whose sensor process is watched
// over by the loop's timers: a driver that hangs delays nobody.

#include <functional>
#include <memory>
#include <optional>

#include "gpu/snapshot.h"
#include "loop/loop.h"
#include "sense/sampler.h"

namespace lull {

class LoopSampler {
 public:
  // `on_sample` gets each sample that was asked for; it may change it and keep what it likes.
  LoopSampler(Loop& loop, SamplerOptions options, std::function<void(Snapshot&)> on_sample);
  LoopSampler(const LoopSampler&) = delete;
  LoopSampler& operator=(const LoopSampler&) = delete;
  ~LoopSampler();

  void request(bool fresh_lists = false);  // one more sample; ignored while one is under way
  // Waits for one, with the sampler's own limits and this one; on_sample does not get it. False: it did not come in
  // time, and on_sample will get it.
  bool sample_here(Duration limit = Duration::max());
  void let_go() { sampler_->let_go(); }
  const Snapshot& newest() const { return snapshot_; }

 private:
  void take();
  void watch();

  Loop& loop_;
  std::unique_ptr<Sampler> sampler_;
  std::function<void(Snapshot&)> on_sample_;
  Snapshot snapshot_;
  std::optional<Loop::TimerId> look_;
};

}  // namespace lull
