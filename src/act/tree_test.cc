#include "act/tree_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

INSTANTIATE_TEST_SUITE_P(Ways, TreeTest, testing::Values(false, true),
                         [](const auto& way) { return way.param ? "cgroup" : "walk"; });

TEST_P(TreeTest, EndsChildrenThatIgnoreTermCallSetsidAndForkTwice) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    for (int i = 0; i < 4; ++i) {
      if (::fork() == 0) {
        if ((i & 1) != 0) ignore_term();
        if ((i & 2) != 0) {
          ::setsid();
          if (::fork() != 0) ::_exit(0);  // the grandchild is an orphan
        }
        ready();
        wait_for_ever();
      }
    }
    ready();
    wait_for_ever();
  });
  wait_ready(5);
  const Tree job = tree();
  // A grandchild may be ready before its parent, which hands over to it, is quite gone.
  const SystemClock clock;
  for (const Instant enough = clock.now() + 10s; job.members().size() != 5 && clock.now() < enough;) ::sched_yield();
  EXPECT_EQ(job.members().size(), 5U);
  for (const ProcessEntry& one : job.members()) EXPECT_TRUE(job.contains(one.pid));
  EXPECT_FALSE(job.contains(::getpid()));
  EXPECT_FALSE(job.contains(1));
  Ending ending(job, root_, {.grace = 500ms});
  const Duration took = finish(ending);
  EXPECT_EQ(ending.state(), Ending::State::gone);
  EXPECT_EQ(ending.signalled(), 5U);
  EXPECT_EQ(ending.killed(), 2U);
  EXPECT_GE(took, 500ms);
  EXPECT_TRUE(all_gone(1000));
  ASSERT_TRUE(status_);
  EXPECT_EQ(status_->signal, SIGTERM);
}

TEST_P(TreeTest, KillComesWhenTheGraceIsOverNeitherBeforeNorLater) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start_one_that_stays();
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 5s});
  const Instant begin = clock_.now();  // as the ending is told it: no clock in there
  auto next = ending.step(begin);
  while (next && *next < begin + 5s) {
    next = ending.step(*next);
    ASSERT_EQ(ending.killed(), 0U);
    ASSERT_EQ(ending.state(), Ending::State::signalled);
  }
  ASSERT_EQ(next, begin + 5s);
  ending.step(*next);
  EXPECT_EQ(ending.killed(), 1U);
  EXPECT_TRUE(all_gone(10'000));
  children_.sweep();
}

TEST_P(TreeTest, TimeInWhichWeStoodStillIsNotCounted) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start_one_that_stays();
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 5s});
  Instant now = clock_.now();
  ASSERT_TRUE(ending.step(now));
  now += 1h;  // a closed lid
  auto next = ending.step(now);
  EXPECT_EQ(ending.killed(), 0U);
  Duration left{};
  while (next && ending.killed() == 0) {
    left += *next - std::exchange(now, *next);
    next = ending.step(now);
  }
  EXPECT_GT(left, 4900ms);
  EXPECT_LE(left, 5s);
  EXPECT_TRUE(all_gone(10'000));
  children_.sweep();
}

TEST_P(TreeTest, TimeInWhichSomebodyIsStoppedIsNotCounted) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start_one_that_stays();
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 1s, .longest_halt = 20s});
  const Instant begin = clock_.now();
  auto next = ending.step(begin);
  ASSERT_TRUE(root_.signal(SIGSTOP));
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(root_.pid()), &info, WSTOPPED | WNOWAIT), 0);
  while (next && *next < begin + 10s) next = ending.step(*next);
  EXPECT_EQ(ending.killed(), 0U);
  Instant now = *next;
  while (next && ending.killed() == 0 && now < begin + 60s) next = ending.step(now = *next);
  EXPECT_EQ(ending.killed(), 1U) << "not for ever";
  EXPECT_GE(now, begin + 20s);
  EXPECT_LE(now, begin + 22s);
  EXPECT_TRUE(all_gone(10'000));
  children_.sweep();
}

TEST_P(TreeTest, GraceEndsWhenAllAreGone) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    if (::fork() == 0) wait_for_ever();
    ready();
    wait_for_ever();
  });
  wait_ready(1);
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 60s});
  EXPECT_LT(finish(ending), 5s);
  EXPECT_EQ(ending.killed(), 0U);
  EXPECT_TRUE(all_gone(1000));
}

TEST_P(TreeTest, StoppedProcessesHearTheSignal) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    ready();
    ::raise(SIGSTOP);
    wait_for_ever();
  });
  wait_ready(1);
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 60s});
  EXPECT_LT(finish(ending), 5s);
  ASSERT_TRUE(status_);
  EXPECT_EQ(status_->signal, SIGTERM);
}

TEST_P(TreeTest, OneThatForksAwayFromTheSignalIsCaught) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  // Each generation lives a moment and hands over to the next: a pid is never the same twice.
  start([&] {
    ignore_term();
    ready();
    const SystemClock clock;
    const Instant enough = clock.now() + 15s;  // whatever happens to the test
    while (clock.now() < enough) {
      if (::fork() != 0) ::_exit(0);
      ::setsid();
    }
  });
  wait_ready(1);
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 20ms});
  finish(ending);
  EXPECT_EQ(ending.state(), Ending::State::gone);
  EXPECT_TRUE(all_gone(1000));
}

TEST_P(TreeTest, ForkBombThatRacesTheKillIsEnded) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  // Bounded: no process forks more than 3 times, and none after 6 generations.
  start([&] {
    ignore_term();
    ready();
    for (int generation = 0; generation < 6; ++generation) {
      for (int i = 0; i < 3; ++i) {
        if (::fork() == 0) break;
        if (i == 2) wait_for_ever();
      }
    }
    wait_for_ever();
  });
  wait_ready(1);
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 5ms});
  finish(ending);
  EXPECT_EQ(ending.state(), Ending::State::gone);
  EXPECT_TRUE(all_gone(1000));
}

TEST_P(TreeTest, TwoHundredProcessesHalfOfThemStubborn) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    for (int i = 1; i < 200; ++i) {
      if (::fork() == 0) {
        if ((i & 1) != 0) ignore_term();
        if (i % 10 == 0) ::setsid();
        ready();
        wait_for_ever();
      }
    }
    ready();
    wait_for_ever();
  });
  wait_ready(200);
  const Tree job = tree();
  Ending ending(job, root_, {.grace = 1s});
  finish(ending);
  EXPECT_EQ(ending.state(), Ending::State::gone);
  EXPECT_EQ(ending.signalled(), 200U);
  EXPECT_EQ(ending.killed(), 100U);
  EXPECT_TRUE(all_gone(1000));
}

}  // namespace
}  // namespace lull
