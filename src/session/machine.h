#pragma once
// The real machine behind a session: one loop, our children, the terminal, signals as they were when we started.

#include <memory>
#include <set>

#include "act/children.h"
#include "act/helper.h"
#include "act/spawn.h"
#include "act/terminal.h"
#include "session/world.h"

namespace lull {

class Machine final : public World {
 public:
  // Before anything is watched, and before there is any other child of ours.
  static Result<std::unique_ptr<Machine>> open(const Clock& clock);
  ~Machine() override;

  Loop& loop() override { return *loop_; }
  Result<> listen(const sigset_t& signals, OnSignal on_signal) override;
  std::unique_ptr<SampleSource> sampler(SamplerOptions options, SampleSource::OnSample on_sample) override;
  double user_idle() override;
  Result<std::unique_ptr<Job>> start(const JobOptions& options, JobCalls calls) override;
  std::vector<std::unique_ptr<Action>> actions_of(const ActionWord& word, const ActionOptions& options) override;
  std::vector<Card> census(const Snapshot& snapshot) override;
  std::unique_ptr<Action> end_holders(const std::string& text, Ending::Options options, EndHolders::Who who) override;
  void stop_ourselves() override;

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
  std::set<Tree::Name> earlier_;
  std::unique_ptr<Helpers> helpers_;
  std::unique_ptr<Census> census_;
};

}  // namespace lull
