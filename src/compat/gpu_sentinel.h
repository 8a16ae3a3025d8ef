#pragma once
// gpu_sentinel by its document: its options and defaults, and the rules they mean. One
// tick a second; the mean over the devices; strictly above arms, strictly below triggers.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "session/watch_session.h"

namespace lull {

struct SentinelOptions {
  std::int64_t arm_duration = 30;  // ticks; less than 1: armed from the start
  double arm_threshold = 0.8;      // a share, also one that never or always holds
  std::int64_t kill_duration = 30;
  double kill_threshold = 0.7;
  std::string kill_action = "end_process";  // shutdown, reboot
  std::vector<std::int64_t> gpu_devices;    // empty: all
  bool ignore_missing = false;              // ours
  bool help = false;

  std::optional<std::string> arm_rule() const;  // "mean(util) > 80 for 30 samples"
  std::string kill_rule() const;                // "mean(util) < 70 for 30 samples"
};

// The error's errno_value is the exit status, as in its original: 2 where the words cannot be read, 1 where a value
// makes no sense.
Result<SentinelOptions> parse_sentinel(std::span<const std::string> words);
std::string_view sentinel_usage();
std::string_view sentinel_help();

// Its lines on stdout: before it watches, and once it is armed.
std::vector<std::string> sentinel_start(const SentinelOptions& options, bool root);
std::string sentinel_armed(const SentinelOptions& options);
// Ours, for stderr.
std::string sentinel_triggered(const SentinelOptions& options);

// gpu_sentinel as settings and a sink of the session of `lull watch`.
inline constexpr int kSentinelFailed = 1;

// Its messages on stdout, ours on stderr.
class SentinelConsole final : public Sink {
 public:
  // `absent`: what to say about devices that are not there; `armed`: from the beginning.
  SentinelConsole(const SentinelOptions& options, std::string absent, const Clock& clock, bool armed);

  void started() override;
  void happened(const Event& event) override;
  void firing(const FiringFacts& facts, bool dry_run) override;
  void did(const ActionEvent& action_event) override;
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
