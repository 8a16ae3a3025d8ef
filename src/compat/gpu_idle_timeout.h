#pragma once
// gpu_idle_timeout by its documents: its options and defaults, the rule they mean, and
// every line that it logs. What is done with them is the caller's to say.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

struct IdleTimeoutOptions {
  double threshold = 1;    // %
  double sample_freq = 5;  // s
  std::uint32_t num_samples = 60;
  std::uint32_t delay_samples = 12;
  bool any = false;
  bool debug = false;
  bool help = false;
  std::optional<int> signal;         // sent before the kill
  bool signal_children = false;      // to the whole tree, deepest first
  std::string gpus;                  // ours: which GPUs count
  std::vector<std::string> actions;  // ours: what to end where there is no Determined task
  std::vector<std::string> command;  // empty: runs inside a task

  std::string rule() const;  // "util < 50 for 5 samples"
  Duration every() const;
  Duration delay() const;  // until the first sample that counts
};

Result<IdleTimeoutOptions> parse_idle_timeout(std::span<const std::string> words);
std::string_view idle_timeout_usage();
std::string_view idle_timeout_help();

// "2024-03-15 11:04:29,052: INFO: gpu_idle_timeout: …"
std::string idle_timeout_log(WallTime at, std::string_view level, std::string_view text);

std::string idle_timeout_started(const IdleTimeoutOptions& options);
// At a sample of the delay; nothing where there is nothing to wait for any more.
std::optional<std::string> idle_timeout_waiting(const IdleTimeoutOptions& options, std::uint64_t tick);
std::string idle_timeout_usage_of(std::string_view uuid, double util);
std::string idle_timeout_fired(const IdleTimeoutOptions& options, std::span<const std::string> uuids);
std::string_view idle_timeout_killing();

}  // namespace lull
