#pragma once
// The real machine behind a session: one loop, our children, the terminal, signals as they were when we started.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "act/children.h"
#include "act/spawn.h"
#include "gpu/snapshot.h"
#include "loop/loop.h"
#include "sense/presence.h"
#include "sense/sampler.h"
#include "session/sample_source.h"
#include "session/world.h"

namespace lull {

class Machine final : public World {
 public:
  // Before anything is watched, and before there is any other child of ours.
  static Result<std::unique_ptr<Machine>> open(const Clock& clock);
  ~Machine() override;

  Loop& loop() override { return *loop_; }
  Result<> listen(const std::vector<int>& signals, OnSignal on_signal) override;
  std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) override;
  double user_idle() override;
  Result<std::unique_ptr<Job>> start(const JobOptions& options, JobCalls calls) override;
  std::vector<std::unique_ptr<Action>> actions_of(const ActionOption& word, const ActionOptions& options) override;
  std::unique_ptr<Action> end_holders(const std::string& text, Ending::Options options, EndHolders::Who who) override;
  std::unique_ptr<Action> parking(const std::string& text, const ParkOptions& options, ParkJob::Who who,
                                  std::unique_ptr<Action> otherwise) override;
  std::unique_ptr<Action> evidence(const std::string& folder, const Recorder& recorder) override;
  void stop_ourselves() override;
  void run_helper(const std::vector<std::string>& command, Duration limit, Helpers::Done done) override;
  void run_tool(const HelperOptions& options, Helpers::Done done) override;

  // For sessions that start more than one job (fill/).
  Children& children() { return children_; }
  Helpers& helpers(bool use_cgroup = true);
  const InheritedSignals& signals() const { return signals_; }

 private:
  explicit Machine(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
  InheritedSignals signals_;
  Terminal terminal_;
  Children children_;
  std::set<ProcessId> earlier_;
  std::unique_ptr<Helpers> helpers_;
  Presence presence_;
};

// A sampler whose samples come in through a loop, and whose sensor process is watched
// over by the loop's timers: a driver that hangs delays nothing. LoopSenses are a loop of their own and such samplers,
// for sessions that leave signals, children and the terminal as they are.
class LoopSampler final : public SampleSource {
 public:
  // `on_sample` gets each sample that was asked for.
  LoopSampler(Loop& loop, SamplerOptions options, std::function<void(const Snapshot&)> on_sample);
  ~LoopSampler() override;

  void request(bool fresh_lists) override;
  bool sample_here(Duration limit) override;
  void release_driver() override { sampler_->release_driver(); }
  const Snapshot& newest() const override { return snapshot_; }

 private:
  void take();
  void watch();
  void look_at(Instant by);

  Loop& loop_;
  std::unique_ptr<Sampler> sampler_;
  std::function<void(const Snapshot&)> on_sample_;
  Snapshot snapshot_;
  Timer look_{loop_};
  bool deaf_ = false;  // no descriptor was left for the wake-up: we look by ourselves, if only to say so
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
