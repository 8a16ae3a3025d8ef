// Bytes of a job that are in no system call, or in nobody's account.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "sense/job.h"
#include "sense/job_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class Bytes : public testing::Test {
 protected:
  JobUsage sample(Instant at, const std::vector<ProcessEntry>& members, const std::vector<Reaped>& orphans = {}) {
    return sensor_.sample(members, at, {.orphans = orphans});
  }
  static void expect_unknown(const JobUsage& usage) {
    EXPECT_TRUE(usage.io_uncounted);
    EXPECT_TRUE(std::isnan(usage.io_bytes_per_second));
    Facts facts;
    add_to(facts, usage);
    EXPECT_EQ(facts.why_missing(Metric::io), Absence::not_covered);
    EXPECT_EQ(facts.why_missing(Metric::quiet), Absence::not_covered);
  }

  FakeProc proc_;
  JobSensor sensor_{proc_.root()};
};

TEST_F(Bytes, WrittenThroughAMappingShowAtTheDiskAlone) {
  sample(Instant(0s), {proc_.process(5, 0, 0, 100, 100, 0, 0)});
  const JobUsage usage = sample(Instant(10s), {proc_.process(5, 0, 0, 100, 100, 0, 4096)});
  EXPECT_DOUBLE_EQ(usage.io_bytes_per_second, 409.6);
  EXPECT_EQ(usage.quiet_seconds, 0);
}

TEST_F(Bytes, ReadThroughAMappingShowAtTheDiskAlone) {
  sample(Instant(0s), {proc_.process(5, 0, 0, 100, 100, 0, 0)});
  const JobUsage usage = sample(Instant(10s), {proc_.process(5, 0, 0, 100, 100, 8192, 0)});
  EXPECT_DOUBLE_EQ(usage.io_bytes_per_second, 819.2);
  EXPECT_EQ(usage.quiet_seconds, 10) << "it wrote nothing";
}

TEST_F(Bytes, OfAnOrphanThatWeReapedAreUnknownForThatSample) {
  const auto one = proc_.process(5, 0, 0, 0, 0);
  sample(Instant(0s), {one});
  expect_unknown(sample(Instant(10s), {one}, {{.pid = 7, .cpu_seconds = 0}}));
  const JobUsage usage = sample(Instant(20s), {one});
  EXPECT_EQ(usage.io_bytes_per_second, 0);
  EXPECT_EQ(usage.quiet_seconds, 10) << "what the orphan may have written counts as written then";
}

TEST_F(Bytes, OfAChildWhoseParentIgnoresItsEndAreUnknownForThatSample) {
  const auto one = proc_.process(5, 0, 0, 0, 0);
  proc_.write("5/status", "Name:\tx\nSigIgn:\t0000000000010000\n");
  sample(Instant(0s), {one, child_of(proc_.process(6, 0, 0, 0, 0), 5)});
  proc_.remove(6);
  expect_unknown(sample(Instant(10s), {one}));
  EXPECT_EQ(sample(Instant(20s), {one}).io_bytes_per_second, 0);
}

TEST_F(Bytes, OfOneThatNobodyHasWaitedForYetAreUnknownForThatSample) {
  const auto one = proc_.process(5, 0, 0, 0, 0);
  auto child = child_of(proc_.process(6, 0, 0, 0, 0), 5);
  sample(Instant(0s), {one, child});
  expect_unknown(sample(Instant(10s), {one}));  // it is still in /proc, and no member any more
  EXPECT_EQ(sample(Instant(20s), {one}).io_bytes_per_second, 0);
}

TEST_F(Bytes, OfOneThatEndedUnseenAndNobodyWaitedForCount) {
  const auto one = proc_.process(5, 0, 0, 0, 0);
  sample(Instant(0s), {one});
  const auto child = FakeProc::ended(child_of(proc_.process(6, kTicks, 0, 0, 1000), 5));
  const JobUsage usage = sample(Instant(10s), {one, child});
  EXPECT_EQ(usage.io_bytes_per_second, 100);
  EXPECT_EQ(usage.quiet_seconds, 0);
  EXPECT_EQ(usage.cpu_percent, 10);
  EXPECT_EQ(sample(Instant(20s), {one, child}).io_bytes_per_second, 0);
}

TEST_F(Bytes, OfOneThatEndedAreUnknownOnceWhereTheyMayNotBeRead) {
  const auto one = proc_.process(5, 0, 0, 0, 0);
  sample(Instant(0s), {one});
  const auto child = FakeProc::ended(child_of(proc_.process(6, 0, 0, -1, -1), 5));
  const JobUsage usage = sample(Instant(10s), {one, child});
  EXPECT_FALSE(usage.io_unreadable);
  expect_unknown(usage);
  EXPECT_EQ(sample(Instant(20s), {one, child}).io_bytes_per_second, 0);
}

TEST_F(Bytes, OfAChildThatWasWaitedForAreInItsParentsAccount) {
  sample(Instant(0s), {proc_.process(5, 0, 0, 0, 0), child_of(proc_.process(6, 0, 0, 0, 0), 5)});
  proc_.remove(6);
  EXPECT_EQ(sample(Instant(10s), {proc_.process(5, 0, 0, 0, 1000)}).io_bytes_per_second, 100);
}

class UnseenChildren : public Bytes {
 protected:
  UnseenChildren() {
    sensor_ = JobSensor(proc_.root(), true);
    one_ = proc_.process(5, 0, 0, 0, 0);
    std::filesystem::create_directory(proc_.root().proc + "/5/fd");
    newest(100);
  }
  void newest(int pid) { proc_.write("loadavg", "0.00 0.01 0.02 1/99 " + std::to_string(pid) + "\n"); }
  void ignores_children(bool yes) {
    proc_.write("5/status", std::string("Name:\tx\nSigIgn:\t") + (yes ? "0000000000010000\n" : "0000000000000000\n"));
  }
  ProcessEntry one_;
};

TEST_F(UnseenChildren, OfOneThatIgnoresTheirEndMayHaveWritten) {
  ignores_children(true);
  EXPECT_FALSE(sample(Instant(0s), {one_}).io_uncounted) << "nothing is said of the time before";
  newest(101);
  const JobUsage usage = sample(Instant(10s), {one_});
  expect_unknown(usage);
  EXPECT_EQ(usage.uncounted, "process 5 ignores the end of its children (SIGCHLD)");
  EXPECT_EQ(sample(Instant(20s), {one_}).io_bytes_per_second, 0) << "nobody was born since";
  std::filesystem::remove(proc_.root().proc + "/loadavg");
  expect_unknown(sample(Instant(30s), {one_}));
}

TEST_F(UnseenChildren, OfOneThatWaitsAreInItsAccount) {
  ignores_children(false);
  sample(Instant(0s), {one_});
  newest(101);
  EXPECT_EQ(sample(Instant(10s), {one_}).io_bytes_per_second, 0);
}

TEST_F(UnseenChildren, ARingMovesBytesThatNobodyCounts) {
  ignores_children(false);
  sample(Instant(0s), {one_});
  std::filesystem::create_symlink("anon_inode:[io_uring]", proc_.root().proc + "/5/fd/7");
  const JobUsage usage = sample(Instant(10s), {one_});
  expect_unknown(usage);
  EXPECT_EQ(usage.uncounted, "process 5 has an io_uring");
}

}  // namespace
}  // namespace lull
