#pragma once
// What a `lull watch --per` says about each GPU or job that it judges, when `lull jobs` asks over the socket of
// `lull keep`: how long it has been idle, what is done next, until when it is kept. One line for each; what is unknown
// is "-", never 0.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/process.h"

namespace lull {

struct WatchedJob {
  std::string key;                        // of its subject: "job:slurm:12", "gpu:GPU-…"
  ProcessId process = {};                 // one of its processes and when it started; 0: it has none
  std::optional<Duration> idle_for = {};  // 0: it works
  std::optional<Duration> next_in = {};   // from now on, at the earliest
  std::optional<Duration> kept_for = {};  // from now on; nothing: no time was asked for
  std::string next = {};                  // the action; empty: none is under way
  bool dry_run = false;
  bool operator==(const WatchedJob&) const = default;
};

inline constexpr std::string_view kJobsQuestion = "lull-jobs";

// As many as fit into `most` bytes.
std::string to_lines(const std::vector<WatchedJob>& jobs, std::size_t most);
// Lines that are none are left out.
std::vector<WatchedJob> read_watched_jobs(std::string_view lines);

}  // namespace lull
