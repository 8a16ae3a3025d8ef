#pragma once
// gpu_sentinel as settings and a sink of the session of `lull watch`.

#include <optional>
#include <string>

#include "compat/gpu_sentinel.h"
#include "session/watch_session.h"

namespace lull {

inline constexpr int kSentinelFailed = 1;

// Its messages on stdout, ours on stderr.
class SentinelVoice final : public Sink {
 public:
  // `absent`: what to say about devices that are not there; `armed`: from the beginning.
  SentinelVoice(const SentinelOptions& options, std::string absent, const Clock& clock, bool armed);

  void started() override;
  void happened(const Event& event) override;
  void firing(const FiringFacts& facts, bool dry_run) override;
  void did(const News& news) override;
  void note(Level level, std::string_view event, const std::string& text) override;

 private:
  const SentinelOptions& options_;
  std::string absent_;
  const Clock& clock_;
  bool armed_;
  std::optional<Instant> failure_said_;
};

// Which of the devices that it was given are on this system. An error: none of them is.
struct SentinelDevices {
  std::string there;   // for --gpus; empty: all
  std::string absent;  // what to say about the others
};
Result<SentinelDevices> sentinel_devices(const SentinelOptions& options);

WatchSettings sentinel_settings(const SentinelOptions& options, Policy policy, const SentinelDevices& devices);

}  // namespace lull
