#pragma once
// Looking at the GPUs again and again until told to stop, with nothing to judge: `lull record`, and
// with a screen on top (live_view.h) `lull status --watch` and `lull leases --watch`, are settings and a sink of it.

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/exit_status.h"
#include "session/world.h"

namespace lull {

struct SamplingSettings {
  SamplerOptions sampling;
  Duration every{};
  std::optional<Duration> length;      // from the first sample on
  std::vector<int> more_signals = {};  // are told, and do not end it
  std::function<void(int signal)> on_signal = nullptr;
  int reader = -1;  // whoever reads this pipe: that it goes away is the end, and no failure
};

class SamplingSession {
 public:
  // Gets each sample; with an end, that is it.
  using OnSample = std::function<std::optional<SessionEnd>(const Snapshot&)>;

  SamplingSession(SamplingSettings settings, World& world, OnSample on_sample);

  SessionEnd run();
  void end(SessionEnd how);
  bool reader_left() const { return reader_left_; }

 private:
  Result<> listen();
  void on_signal(const signalfd_siginfo& info);
  void take(const Snapshot& snapshot);

  SamplingSettings settings_;
  World& world_;
  OnSample on_sample_;
  std::unique_ptr<SampleSource> sampler_;
  Ticker ticker_;
  std::optional<Instant> start_;  // the first sample
  bool reader_left_ = false;
  bool ended_ = false;
  SessionEnd end_;
};

}  // namespace lull
