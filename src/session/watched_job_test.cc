#include "session/watched_job.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(WatchedJobs, ComeBackAsTheyWere) {
  const std::vector<WatchedJob> all = {
      {.key = "job:slurm:22", .process = {4711, 99}, .idle_for = 90s, .next_in = 30s, .next = "slurm=requeue"},
      {.key = "gpu:GPU-1", .kept_for = 4h, .dry_run = true},
      {.key = "job:container:with a blank", .idle_for = 0s},
  };
  EXPECT_EQ(read_watched_jobs(to_lines(all, 1 << 16)), all);
}

TEST(WatchedJobs, UnknownIsNoTime) {
  const auto all = read_watched_jobs("lull-job - - - 0 0 acts - job:slurm:1\n");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_FALSE(all[0].idle_for || all[0].next_in || all[0].kept_for);
}

TEST(WatchedJobs, WhatIsNoLineIsLeftOut) {
  for (const char* line :
       {"", "kept: all", "lull-job", "lull-job -1 - - 0 0 acts - x", "lull-job nan - - 0 0 acts - x",
        "lull-job 1e99 - - 0 0 acts - x", "lull-job 1 - - 0 0 maybe - x", "lull-job 1 - - x 0 acts - x",
        "lull-job 1 - - 99999999999 0 acts - x", "lull-job 1 - - 0 0 acts -", "lull-job 1 - - 0 0 acts - "})
    EXPECT_TRUE(read_watched_jobs(line).empty()) << line;
}

TEST(WatchedJobs, NoLineIsCutInTwo) {
  const std::vector<WatchedJob> all(100, WatchedJob{.key = "job:slurm:22", .idle_for = 1s});
  const std::string lines = to_lines(all, 1000);
  EXPECT_LE(lines.size(), 1000U);
  const auto back = read_watched_jobs(lines);
  EXPECT_EQ(back, std::vector<WatchedJob>(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(back.size())));
  EXPECT_GT(back.size(), 10U);
}

}  // namespace
}  // namespace lull
