#pragma once
// A sampler whose samples come in through a loop, and whose sensor process is watched
// over by the loop's timers: a driver that hangs delays nobody. LoopSenses are a loop of their own and such samplers,
// for sessions that leave signals, children and the terminal as they are.

#include <functional>
#include <memory>
#include <optional>
#include <utility>

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

class LoopSenses final : public Senses {
 public:
  static Result<std::unique_ptr<LoopSenses>> open(const Clock& clock);

  Loop& loop() override { return *loop_; }
  std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) override {
    return std::make_unique<LoopSampler>(*loop_, std::move(options), std::move(on_sample));
  }

 private:
  explicit LoopSenses(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
  std::unique_ptr<Loop> loop_;
};

}  // namespace lull
