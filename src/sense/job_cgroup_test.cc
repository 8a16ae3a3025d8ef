// CPU of a job that has a cgroup, of which processes are moved to another: systemd-run --scope, cgexec, a container.
#include <gtest/gtest.h>

#include <cmath>

#include "sense/job.h"
#include "sense/job_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class MovedOut : public testing::Test {
 protected:
  // A sample of the shell 5 and of its child 6, where it is there.
  JobUsage sample(Instant at, std::uint64_t cgroup_seconds, const std::vector<pid_t>& inside,
                  const std::vector<ProcessEntry>& members, const std::vector<Reaped>& orphans = {}) {
    return sensor_.sample(members, at,
                          {.cgroup_cpu = cgroup_seconds * 1'000'000, .in_cgroup = inside, .orphans = orphans});
  }
  ProcessEntry shell(std::uint64_t ticks = 0, std::uint64_t children = 0) {
    return proc_.process(5, ticks, children, 0, 0);
  }
  ProcessEntry child(std::uint64_t ticks) { return child_of(proc_.process(6, ticks, 0, 0, 0), 5); }

  FakeProc proc_;
  JobSensor sensor_{proc_.root()};
};

TEST_F(MovedOut, ItsWorkCountsBesideWhatTheCgroupCounted) {
  sample(Instant(0s), 0, {5}, {shell(), child(0)});
  // A second by the cgroup (its short-lived children, of which no account tells) and four by the one outside.
  EXPECT_DOUBLE_EQ(sample(Instant(10s), 1, {5}, {shell(), child(4 * kTicks)}).cpu_percent, 50);
}

TEST_F(MovedOut, BetweenTwoSamplesItMayCountTwiceButNeverNot) {
  sample(Instant(0s), 0, {5, 6}, {shell(), child(0)});
  EXPECT_DOUBLE_EQ(sample(Instant(10s), 2, {5}, {shell(), child(4 * kTicks)}).cpu_percent, 60) << "2 s inside";
  EXPECT_DOUBLE_EQ(sample(Instant(20s), 3, {5, 6}, {shell(), child(8 * kTicks)}).cpu_percent, 50) << "came back";
  EXPECT_DOUBLE_EQ(sample(Instant(30s), 4, {5, 6}, {shell(), child(9 * kTicks)}).cpu_percent, 10) << "exact again";
}

TEST_F(MovedOut, WhatItDidAtTheEndIsWithWhoeverWaitedForIt) {
  sample(Instant(0s), 0, {5}, {shell(), child(kTicks)});
  proc_.remove(6);
  const JobUsage usage = sample(Instant(10s), 0, {5}, {shell(0, 4 * kTicks)});
  EXPECT_FALSE(usage.cpu_uncounted);
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 30) << "not the second that was seen before";
}

TEST_F(MovedOut, OneThatCameAndWentBetweenTwoSamplesCounts) {
  sample(Instant(0s), 0, {5}, {shell()});
  EXPECT_DOUBLE_EQ(sample(Instant(10s), 1, {5}, {shell(0, 3 * kTicks)}).cpu_percent, 30);
}

TEST_F(MovedOut, AsAnOrphanItIsWaitedForByUs) {
  sample(Instant(0s), 0, {5}, {shell(), child(kTicks)});
  proc_.remove(6);
  EXPECT_DOUBLE_EQ(sample(Instant(10s), 1, {5}, {shell()}, {{.pid = 6, .cpu_seconds = 3}}).cpu_percent, 30);
  EXPECT_DOUBLE_EQ(sample(Instant(20s), 1, {5}, {shell()}, {{.pid = 7, .cpu_seconds = 2}}).cpu_percent, 20)
      << "nobody saw it, and it was not in the cgroup";
}

TEST_F(MovedOut, OneThatNobodyWaitedForMakesCpuUnknown) {
  sample(Instant(0s), 0, {5}, {shell(), child(4 * kTicks)});
  proc_.remove(6);
  const JobUsage usage = sample(Instant(10s), 0, {5}, {shell()});
  EXPECT_TRUE(usage.cpu_uncounted);
  EXPECT_TRUE(std::isnan(usage.cpu_percent));
}

TEST_F(MovedOut, OneThatNobodyHasWaitedForYetIsNotTakenForMoved) {
  sample(Instant(0s), 0, {5, 6}, {shell(), child(0)});
  EXPECT_DOUBLE_EQ(sample(Instant(10s), 1, {5}, {shell(), FakeProc::ended(child(kTicks))}).cpu_percent, 10);
}

TEST_F(MovedOut, TheEndOfOneThatStayedInsideIsNoWorkOfNow) {
  sample(Instant(0s), 0, {5, 6}, {shell(), child(50 * kTicks)});
  proc_.remove(6);
  EXPECT_DOUBLE_EQ(sample(Instant(10s), 1, {5}, {shell(0, 51 * kTicks)}).cpu_percent, 10);
}

}  // namespace
}  // namespace lull
