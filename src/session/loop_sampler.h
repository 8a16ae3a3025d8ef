#pragma once
// A sampler whose samples come in through a loop, and whose sensor process is watched
// over by the loop's timers: a driver that hangs delays nobody.

#include <functional>
#include <memory>
#include <optional>

#include "gpu/snapshot.h"
#include "loop/loop.h"
#include "sense/sampler.h"
#include "session/sample_source.h"

namespace lull {

class LoopSampler final : public SampleSource {
 public:
  // `on_sample` gets each sample that was asked for.
  LoopSampler(Loop& loop, SamplerOptions options, std::function<void(const Snapshot&)> on_sample);
  ~LoopSampler() override;

  void request(bool fresh_lists) override;
  bool sample_here(Duration limit) override;
  void let_go() override { sampler_->let_go(); }
  const Snapshot& newest() const override { return snapshot_; }

 private:
  void take();
  void watch();
  void look_at(Instant by);

  Loop& loop_;
  std::unique_ptr<Sampler> sampler_;
  std::function<void(const Snapshot&)> on_sample_;
  Snapshot snapshot_;
  std::optional<Loop::TimerId> look_;
  bool deaf_ = false;  // no descriptor was left for the bell: we look by ourselves, if only to say so
};

}  // namespace lull
