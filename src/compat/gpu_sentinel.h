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

}  // namespace lull
