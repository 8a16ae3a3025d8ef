#include "sense/job.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sense/job_test.h"
#include "sense/presence.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(JobSensor, FirstSampleHasNoRates) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const std::vector members{proc.process(5, 100, 0, 10, 10)};
  const JobUsage usage = sensor.sample(members, Instant(10s));
  EXPECT_TRUE(std::isnan(usage.cpu_percent));
  EXPECT_TRUE(std::isnan(usage.io_bytes_per_second));
  EXPECT_EQ(usage.quiet_seconds, 0);
}

TEST(JobSensor, CountsTheTimeSinceTheLastSample) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  std::vector members{proc.process(5, 100, 0, 1000, 1000), proc.process(6, 50, 0, 0, 0)};
  sensor.sample(members, Instant(10s));
  members = {proc.process(5, 100 + kTicks, 0, 3000, 1000), proc.process(6, 50 + kTicks, 0, 0, 0)};
  JobUsage usage = sensor.sample(members, Instant(14s));
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 50);
  EXPECT_DOUBLE_EQ(usage.io_bytes_per_second, 500);
  EXPECT_DOUBLE_EQ(usage.quiet_seconds, 4);  // it only read
  members[1] = proc.process(6, 50 + kTicks, 0, 0, 8);
  usage = sensor.sample(members, Instant(18s));
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 0);
  EXPECT_DOUBLE_EQ(usage.io_bytes_per_second, 2);
  EXPECT_DOUBLE_EQ(usage.quiet_seconds, 0);
}

TEST(JobSensor, ASampleRightAfterAnotherAnswersForTheTimeOfBoth) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  sensor.sample(std::vector{proc.process(5, 0, 0, 0, 0)}, Instant(0s));
  sensor.sample(std::vector{proc.process(5, 2, 0, 100, 0)}, Instant(10s));
  JobUsage usage = sensor.sample(std::vector{proc.process(5, 3, 0, 100, 0)}, Instant(10s + 2ms));
  EXPECT_NEAR(usage.cpu_percent, 100 * 3.0 / static_cast<double>(kTicks) / 10, 0.01) << "not a tick in 2 ms";
  EXPECT_NEAR(usage.io_bytes_per_second, 10, 0.01);
  usage = sensor.sample(std::vector{proc.process(5, 3 + kTicks, 0, 100, 0)}, Instant(11s));
  EXPECT_NEAR(usage.cpu_percent, 100, 0.3) << "and the next one for its own again";
}

TEST(JobSensor, WorkOfShortLivedChildrenIsSeen) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  sensor.sample(std::vector{proc.process(5, 0, 0, 0, 0)}, Instant(0s));
  const JobUsage usage = sensor.sample(std::vector{proc.process(5, 0, 2 * kTicks, 0, 0)}, Instant(10s));
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 20);
}

TEST(JobSensor, CgroupIsExactWhereThereIsOne) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const std::vector members{proc.process(5, 0, 0, 0, 0)};
  const std::vector<pid_t> inside{5};
  sensor.sample(members, Instant(0s), {.cgroup_cpu = 1'000'000, .in_cgroup = inside});
  EXPECT_DOUBLE_EQ(sensor.sample(members, Instant(2s), {.cgroup_cpu = 2'000'000, .in_cgroup = inside}).cpu_percent, 50);
}

TEST(JobSensor, AnUnreadableAccountIsUnknownAndNeverQuiet) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const std::vector members{proc.process(5, 0, 0, -1, -1)};
  sensor.sample(members, Instant(0s));
  JobUsage usage = sensor.sample(members, Instant(100s));
  EXPECT_TRUE(std::isnan(usage.io_bytes_per_second));
  EXPECT_TRUE(std::isnan(usage.quiet_seconds));
  EXPECT_TRUE(usage.io_unreadable);
  // When it can be read again, the quiet begins then: what it did before was not seen.
  usage = sensor.sample(std::vector{proc.process(5, 0, 0, 7, 7)}, Instant(110s));
  EXPECT_DOUBLE_EQ(usage.quiet_seconds, 0);
  Facts facts;
  add_to(facts, {.cpu_percent = 3, .io_unreadable = true});
  EXPECT_EQ(facts[Metric::cpu], 3);
  EXPECT_EQ(facts.why_missing(Metric::quiet), Absence::no_permission);
  add_to(facts, {.quiet_seconds = 9, .io_uncounted = true});
  EXPECT_EQ(facts.why_missing(Metric::quiet), Absence::not_covered) << "it may have written there";
  add_to(facts, {});
  for (const Metric metric : {Metric::cpu, Metric::io, Metric::quiet}) {
    EXPECT_TRUE(std::isnan(facts[metric]));
    EXPECT_EQ(facts.why_missing(metric), Absence::no_baseline);
  }
}

TEST(JobSensor, OneThatJustEndedIsNoReasonForUnknown) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const std::vector members{proc.process(5, 0, 0, 1, 1), proc.process(6, 0, 0, 1, 1)};
  sensor.sample(members, Instant(0s));
  proc.remove(6);
  EXPECT_DOUBLE_EQ(sensor.sample(members, Instant(10s)).io_bytes_per_second, 0);
}

TEST(JobSensor, ReusedPidIsAnotherProcess) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  std::vector members{proc.process(5, 1000, 0, 1000, 1000)};
  sensor.sample(members, Instant(0s));
  members[0] = proc.process(5, kTicks, 0, 100, 100);
  members[0].start_ticks = 99;
  const std::vector<Reaped> orphans{{.pid = 5, .cpu_seconds = 1000.0 / static_cast<double>(kTicks)}};
  EXPECT_DOUBLE_EQ(sensor.sample(members, Instant(1s), {.orphans = orphans}).cpu_percent, 100);
  members[0] = proc.process(5, kTicks, 0, 150, 150);
  members[0].start_ticks = 99;
  EXPECT_DOUBLE_EQ(sensor.sample(members, Instant(2s)).io_bytes_per_second, 100);
}

TEST(JobSensor, SeesARealProcess) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (;;) {
      const Fd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
      (void)!::write(null.get(), "x", 1);
    }
  }
  const SystemClock clock;
  JobSensor sensor;
  sensor.sample(std::vector{*read_process_entry(child)}, clock.now());
  JobUsage usage;
  for (const Instant end = clock.now() + 20s; clock.now() < end;) {
    usage = sensor.sample(std::vector{*read_process_entry(child)}, clock.now());
    if (usage.cpu_percent > 0 && usage.io_bytes_per_second > 0 && usage.quiet_seconds == 0) break;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_GT(usage.cpu_percent, 0);
  EXPECT_GT(usage.io_bytes_per_second, 0);
  EXPECT_EQ(usage.quiet_seconds, 0);
}

class Terminals : public testing::Test {
 protected:
  Terminals() {
    char name[] = "/tmp/lull_dev_XXXXXX";
    options_.root.dev = ::mkdtemp(name);
    clock_.advance(100'000s);  // since boot and since 1970 alike
  }
  ~Terminals() override { std::filesystem::remove_all(options_.root.dev); }
  void terminal(const std::string& name, long last_key) const {
    const std::string path = options_.root.dev + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << "";
    const timespec times[2] = {{last_key, 0}, {last_key, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }
  PresenceOptions options_;
  ManualClock clock_;
};

TEST_F(Terminals, TheOneUsedLastCounts) {
  EXPECT_DOUBLE_EQ(Presence(options_).user_idle(clock_), 100'000 - 8);
  terminal("tty1", 50'000);
  terminal("pts/3", 99'000);
  terminal("pts/ptmx", 100'000);   // no terminal of anybody
  terminal("ttyprintk", 100'000);  // neither
  EXPECT_DOUBLE_EQ(Presence(options_).user_idle(clock_), 1000 - 8);
  terminal("pts/4", 99'997);
  EXPECT_DOUBLE_EQ(Presence(options_).user_idle(clock_), 0);
  terminal("pts/4", 200'000);  // the clock was set back
  EXPECT_DOUBLE_EQ(Presence(options_).user_idle(clock_), 0);
  options_.ignore = {::getuid()};
  EXPECT_DOUBLE_EQ(Presence(options_).user_idle(clock_), 100'000 - 8);
}

TEST(JobSensor, OrphansThatWereReapedCount) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const auto root = proc.process(5, 0, 0, 0, 0);
  sensor.sample(std::vector{root, proc.process(6, kTicks, 0, 0, 0)}, Instant(0s));
  proc.remove(6);
  // One that was seen with a second of CPU and had three in the end, one that nobody ever saw.
  const std::vector<Reaped> orphans{{.pid = 6, .cpu_seconds = 3}, {.pid = 7, .cpu_seconds = 2}};
  const JobUsage usage = sensor.sample(std::vector{root}, Instant(10s), {.orphans = orphans});
  EXPECT_FALSE(usage.cpu_uncounted);
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 40);
}

TEST(JobSensor, OneThatLeftNoAccountMakesCpuUnknown) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const auto root = proc.process(5, 0, 0, 0, 0);
  // Its parent is nobody whom we follow.
  sensor.sample(std::vector{root, child_of(proc.process(6, 0, 0, 0, 0), 4)}, Instant(0s));
  proc.remove(6);
  JobUsage usage = sensor.sample(std::vector{root}, Instant(10s));
  EXPECT_TRUE(usage.cpu_uncounted);
  EXPECT_TRUE(std::isnan(usage.cpu_percent));
  EXPECT_DOUBLE_EQ(sensor.sample(std::vector{root}, Instant(20s)).cpu_percent, 0) << "for that sample alone";
  // Its parent was given less than it had used.
  sensor.sample(std::vector{root, child_of(proc.process(6, 5 * kTicks, 0, 0, 0), 5)}, Instant(30s));
  proc.remove(6);
  EXPECT_TRUE(sensor.sample(std::vector{root}, Instant(40s)).cpu_uncounted);
  // Its parent has waited for it.
  sensor.sample(std::vector{root, child_of(proc.process(6, 5 * kTicks, 0, 0, 0), 5)}, Instant(50s));
  proc.remove(6);
  usage = sensor.sample(std::vector{proc.process(5, 0, 5 * kTicks, 0, 0)}, Instant(60s));
  EXPECT_FALSE(usage.cpu_uncounted);
  // A cgroup counts all of it.
  sensor.reset();
  const std::vector<pid_t> inside{5, 6};
  sensor.sample(std::vector{root, child_of(proc.process(6, 0, 0, 0, 0), 4)}, Instant(70s),
                {.cgroup_cpu = 0, .in_cgroup = inside});
  proc.remove(6);
  usage = sensor.sample(std::vector{root}, Instant(80s), {.cgroup_cpu = 1'000'000, .in_cgroup = inside});
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 10);
}

TEST(JobSensor, ParentThatWaitsForNobody) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const auto root = proc.process(5, 0, 0, 0, 0);
  std::ofstream(proc.root().proc + "/5/status") << "Name:\tx\nSigIgn:\t0000000000010000\nSigCgt:\t0\n";
  sensor.sample(std::vector{root, child_of(proc.process(6, 0, 0, 0, 0), 5)}, Instant(0s));
  proc.remove(6);
  EXPECT_TRUE(sensor.sample(std::vector{root}, Instant(10s)).cpu_uncounted);
}

TEST(JobSensor, WorkOutsideTheTreeCounts) {
  FakeProc proc;
  JobSensor sensor(proc.root());
  const auto root = proc.process(5, 0, 0, 0, 0);
  std::vector outside{proc.process(9, 0, 0, 0, 0)};
  const std::vector<pid_t> inside{5};
  sensor.sample(std::vector{root}, Instant(0s), {.cgroup_cpu = 0, .in_cgroup = inside, .outside = outside});
  outside = {proc.process(9, kTicks, 0, 100, 100)};
  const JobUsage usage =
      sensor.sample(std::vector{root}, Instant(10s), {.cgroup_cpu = 500'000, .in_cgroup = inside, .outside = outside});
  EXPECT_DOUBLE_EQ(usage.cpu_percent, 15);
  EXPECT_DOUBLE_EQ(usage.io_bytes_per_second, 20);
}

}  // namespace
}  // namespace lull
