#include "act/tree.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include "act/cgroup.h"
#include "act/children.h"
#include "act/spawn.h"
#include "sense/test_tree.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// Children that a test makes write one byte when they stand; and hold the pipe
// open as long as they live, so that its end is the proof that all are gone.
class TreeTest : public testing::TestWithParam<bool> {
 protected:
  TreeTest() {
    EXPECT_TRUE(Children::become_subreaper());
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    read_ = Fd(ends[0]);
    write_ = Fd(ends[1]);
    if (GetParam()) {
      auto made = Cgroup::create();
      if (made) cgroup_ = *std::move(made);
    }
  }
  ~TreeTest() override {
    cgroup_.remove();
    ::prctl(PR_SET_CHILD_SUBREAPER, 0);
  }

  bool lacks_cgroup() const { return GetParam() && !cgroup_; }

  void start(const std::function<void()>& job) {
    earlier_ = own_children();
    const pid_t pid = ::fork();
    if (pid == 0) {
      if (cgroup_) (void)cgroup_.move_here(::getpid());
      job();
      ::_exit(0);
    }
    root_ = *Process::open(pid);
    children_.expect(root_, [this](const ExitStatus& status) { status_ = status; });
  }
  void ready() const { (void)!::write(write_.get(), "x", 1); }
  void wait_ready(int count) {
    char byte = 0;
    for (int i = 0; i < count; ++i) {
      pollfd one{.fd = read_.get(), .events = POLLIN, .revents = 0};
      ASSERT_EQ(::poll(&one, 1, 20'000), 1) << "only " << i << " of " << count << " processes came up";
      ASSERT_EQ(::read(read_.get(), &byte, 1), 1);
    }
  }
  // All writers are gone: the pipe says end of file.
  bool all_gone(int milliseconds) {
    write_.reset();
    pollfd one{.fd = read_.get(), .events = POLLIN, .revents = 0};
    char byte = 0;
    while (::poll(&one, 1, milliseconds) == 1)
      if (::read(read_.get(), &byte, 1) == 0) return true;
    return false;
  }
  Tree tree() const { return Tree::of_job(root_, cgroup_ ? &cgroup_ : nullptr, earlier_); }

  Duration finish(Ending& ending) {
    const Instant begin = clock_.now();
    while (const auto next = ending.step(clock_.now())) {
      children_.sweep();
      std::this_thread::sleep_for(*next - clock_.now());
    }
    const Duration took = clock_.now() - begin;
    children_.sweep();
    return took;
  }

  SystemClock clock_;
  Fd read_;
  Fd write_;
  Cgroup cgroup_;
  Process root_;
  std::set<Tree::Name> earlier_;
  Children children_;
  std::optional<ExitStatus> status_;
};

void ignore_term() { ::signal(SIGTERM, SIG_IGN); }
[[noreturn]] void wait_for_ever() {
  ::alarm(60);  // whatever happens to the test, nothing stays behind
  for (;;) ::pause();
}

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

TEST_P(TreeTest, OurOwnMachineryIsNotOfTheJob) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    ready();
    wait_for_ever();
  });
  wait_ready(1);
  const pid_t sensor = ::fork();  // younger than the job, and our child: as an orphan of the job would be
  if (sensor == 0) wait_for_ever();
  note_own_process(sensor);
  const Tree job = tree();
  EXPECT_EQ(job.members().size(), 1U);
  EXPECT_FALSE(job.contains(sensor));
  Ending ending(job, root_, {.grace = 60s});
  EXPECT_LT(finish(ending), 5s);
  EXPECT_EQ(ending.state(), Ending::State::gone);
  EXPECT_EQ(::kill(sensor, 0), 0) << "it is not waited for, and not ended";
  ::kill(sensor, SIGKILL);
  EXPECT_EQ(::waitpid(sensor, nullptr, 0), sensor);
}

TEST_P(TreeTest, KillComesWhenTheGraceIsOverNeitherBeforeNorLater) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    ignore_term();
    ready();
    wait_for_ever();
  });
  wait_ready(1);
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

TEST_P(TreeTest, FaultsB3TimeInWhichWeStoodStillIsNotCounted) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    ignore_term();
    ready();
    wait_for_ever();
  });
  wait_ready(1);
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

TEST_P(TreeTest, FaultsB3TimeInWhichSomebodyIsStoppedIsNotCounted) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    ignore_term();
    ready();
    wait_for_ever();
  });
  wait_ready(1);
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

TEST_P(TreeTest, SpareChildrenThatWereNotTheJobs) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  const pid_t earlier = ::fork();  // as after `sleep 100 & exec lull run …`
  if (earlier == 0) {
    ::alarm(60);
    wait_for_ever();
  }
  start([&] {
    ready();
    wait_for_ever();
  });
  wait_ready(1);
  Tree job = tree();
  const pid_t hook = ::fork();
  if (hook == 0) {
    ::alarm(60);
    wait_for_ever();
  }
  job.exclude(*Process::open(hook));
  ASSERT_EQ(job.members().size(), 1U);
  EXPECT_EQ(job.members()[0].pid, root_.pid());
  EXPECT_FALSE(job.contains(earlier));
  EXPECT_FALSE(job.contains(hook));
  Ending ending(job, root_, {.grace = 1s});
  finish(ending);
  for (const pid_t spared : {earlier, hook}) {
    EXPECT_EQ(::waitpid(spared, nullptr, WNOHANG), 0) << "was ended though it is not of the job";
    ::kill(spared, SIGKILL);
    ::waitpid(spared, nullptr, 0);
  }
}

TEST_P(TreeTest, HelpersOrphansAreNotTheJobs) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup of our own here";
  start([&] {
    ready();
    wait_for_ever();
  });
  wait_ready(1);
  Tree job = tree();
  // A hook that leaves something behind on purpose.
  const auto hook = spawn({.arguments = {"sh", "-c", "sleep 60 & printf x"},
                           .environment = {{kHelperMark, std::to_string(::getpid())}},
                           .standard_output = write_.get()});
  ASSERT_TRUE(hook);
  job.exclude(hook->process);
  wait_ready(1);
  while (!hook->process.ended()) std::this_thread::sleep_for(1ms);
  children_.sweep();
  ASSERT_EQ(job.members().size(), 1U);
  Ending ending(job, root_, {.signal = 0});
  finish(ending);
  for (const auto& [pid, start] : own_children()) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
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

INSTANTIATE_TEST_SUITE_P(Ways, TreeTest, testing::Values(false, true),
                         [](const auto& way) { return way.param ? "cgroup" : "walk"; });

// Hours may pass between the naming of a process and its ending.
TEST(TreeOfProcess, WhoHasItsNumberLaterIsSpared) {
  const pid_t child = ::fork();
  if (child == 0) wait_for_ever();
  const Process process = *Process::open(child);
  const Tree named = Tree::of_process(process);
  const TestTree machine;
  const auto write = [&](pid_t pid, pid_t parent, std::uint64_t start) {
    machine.write("proc/" + std::to_string(pid) + "/stat", std::to_string(pid) + " (x) S " + std::to_string(parent) +
                                                               " 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 " +
                                                               std::to_string(start) + " 1 1");
  };
  constexpr pid_t kBelow = 900'000'001;
  write(child, 1, process.start_ticks());
  write(kBelow, child, process.start_ticks());
  EXPECT_EQ(named.members(machine.root()).size(), 2U);
  std::filesystem::remove_all(machine.root().proc + "/" + std::to_string(kBelow));
  write(child, 1, process.start_ticks() + 1);
  write(kBelow + 1, child, process.start_ticks() + 1);
  EXPECT_TRUE(named.members(machine.root()).empty()) << "neither the stranger nor the stranger's children";
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

// As where a job has used sudo. It must be told from one that is gone, and in time.
TEST(TreeOfProcess, WhoIsNotOursToEndIsLeftInTime) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs a second user";
  const pid_t roots = ::fork();
  if (roots == 0) wait_for_ever();
  const pid_t somebody = ::fork();
  if (somebody == 0) {
    if (::setresuid(65534, 65534, 65534) != 0) ::_exit(9);
    const SystemClock clock;
    const Process process = *Process::open(roots);
    const Tree tree = Tree::of_process(process);
    if (tree.signal(SIGTERM).refused != 1) ::_exit(2);
    Ending ending(tree, process, {.grace = 20ms, .give_up = 50ms});
    const Instant end = clock.now() + 30s;
    while (const auto next = ending.step(clock.now())) {
      if (clock.now() > end) ::_exit(3);
      std::this_thread::sleep_for(*next - clock.now());
    }
    if (ending.state() != Ending::State::stuck || ending.signalled() != 0) ::_exit(4);
    ::_exit(ending.left().size() == 1 && ending.left()[0].pid == roots ? 0 : 5);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(somebody, &status, 0), somebody);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(::waitpid(roots, nullptr, WNOHANG), 0) << "it still runs";
  ::kill(roots, SIGKILL);
  ::waitpid(roots, nullptr, 0);
}

TEST(Cgroup, IsFoundWhereverItIsMounted) {
  constexpr std::string_view kHybrid =
      "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
      "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(find_own_cgroup(kHybrid, "4:memory:/x\n0::/\n"), "/sys/fs/cgroup/unified");
  EXPECT_EQ(find_own_cgroup(kHybrid, "0::/user.slice/a b.scope\n"), "/sys/fs/cgroup/unified/user.slice/a b.scope");
  // A bind mount of a part of the tree, at a place with a blank in its name.
  constexpr std::string_view kPart = "50 1 0:38 /docker/abc /my\\040cgroup rw - cgroup2 cgroup2 rw\n";
  EXPECT_EQ(find_own_cgroup(kPart, "0::/docker/abc/job\n"), "/my cgroup/job");
  EXPECT_EQ(find_own_cgroup(kPart, "0::/docker/abc\n"), "/my cgroup");
  EXPECT_EQ(find_own_cgroup(kPart, "0::/docker/abcdef\n"), std::nullopt);
  EXPECT_EQ(find_own_cgroup(kPart, "0::/../outside\n"), std::nullopt);
  EXPECT_EQ(find_own_cgroup(kHybrid, "4:memory:/x\n"), std::nullopt);
  EXPECT_EQ(find_own_cgroup("", "0::/\n"), std::nullopt);
}

TEST(Cgroup, FaultsB3FreezersOfBothKindsAreSeen) {
  const TestTree machine;
  const std::string top = std::filesystem::path(machine.root().proc).parent_path();
  machine.write("proc/self/mountinfo", "37 31 0:34 / " + top + "/v1 rw - cgroup cgroup rw,freezer\n" + "41 31 0:38 / " +
                                           top + "/v2 rw - cgroup2 cgroup2 rw\n");
  machine.write("proc/7/cgroup", "6:freezer:/box\n0::/\n");
  machine.write("proc/8/cgroup", "6:freezer:/\n0::/job\n");
  machine.write("v1/box/freezer.state", "THAWED\n");
  machine.write("v1/freezer.state", "THAWED\n");
  machine.write("v2/job/cgroup.events", "populated 1\nfrozen 0\n");
  EXPECT_FALSE(is_any_frozen({7, 8}, machine.root()));
  machine.write("v1/box/freezer.state", "FREEZING\n");
  EXPECT_TRUE(is_any_frozen({7, 8}, machine.root()));
  EXPECT_FALSE(is_any_frozen({8}, machine.root()));
  machine.write("v2/job/cgroup.events", "populated 1\nfrozen 1\n");
  EXPECT_TRUE(is_any_frozen({8}, machine.root()));
  EXPECT_FALSE(is_any_frozen({9}, machine.root())) << "nobody tells";
}

TEST(Cgroup, FaultsC6RemovalTakesTheEmptyOnesBelowAlong) {
  auto made = Cgroup::create();
  if (!made) GTEST_SKIP() << made.error().message();
  const std::string path = made->path();
  ASSERT_TRUE(std::filesystem::create_directories(path + "/lull-1-1-1/job"));
  ASSERT_TRUE(std::filesystem::create_directories(path + "/podman"));
  made->remove();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
}

TEST(Cgroup, RemovalLetsSurvivorsLive) {
  auto made = Cgroup::create();
  if (!made) GTEST_SKIP() << made.error().message();
  const std::string path = made->path();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    wait_for_ever();
  }
  ASSERT_TRUE(made->move_here(child));
  EXPECT_TRUE(made->populated());
  EXPECT_EQ(made->members(), std::vector{child});
  made->remove();
  EXPECT_NE(::access(path.c_str(), F_OK), 0);
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), 0);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
}

}  // namespace
}  // namespace lull
