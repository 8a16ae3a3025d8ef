#pragma once
// gpu_sentinel by its document: its options and defaults, and the rules they mean. One
// tick a second; the mean over the devices; strictly above arms, strictly below triggers.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

struct SentinelOptions {
  std::uint32_t arm_duration = 30;  // ticks
  double arm_threshold = 0.8;       // 0 to 1
  std::uint32_t kill_duration = 30;
  double kill_threshold = 0.7;
  std::string kill_action = "end_process";  // shutdown, reboot
  std::vector<unsigned> gpu_devices;        // empty: all
  bool ignore_missing = false;              // ours
  bool help = false;

  std::string arm_rule() const;   // "mean(util) > 80 for 30 samples"
  std::string kill_rule() const;  // "mean(util) < 70 for 30 samples"
  std::string gpus() const;       // "0,1"
};

Result<SentinelOptions> parse_sentinel(std::span<const std::string> words);
std::string_view sentinel_usage();
std::string_view sentinel_help();

std::string sentinel_idle(const SentinelOptions& options);
std::string sentinel_armed(const SentinelOptions& options);
std::string sentinel_triggered(const SentinelOptions& options);

}  // namespace lull
