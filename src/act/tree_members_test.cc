#include "act/tree_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>
#include <vector>

#include "act/child_test.h"
#include "act/spawn.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// Whoever was listed may have ended before it is killed, and its number be somebody else's.
TEST(TreeKill, AProcessThatGotTheNumberOfOneThatWasListedIsNotKilled) {
  const Child root;
  Child other;
  const Tree tree = Tree::of_process(*Process::open(root.pid));
  auto listed = *read_process_entry(other.pid);
  ++listed.start_ticks;
  tree.kill_pass({listed});
  ::kill(other.pid, SIGTERM);  // which comes second: who was killed has died of SIGKILL
  const SystemClock clock;
  const Instant end = clock.now() + 20s;
  while (other.ended_by() == 0 && clock.now() < end) std::this_thread::yield();
  EXPECT_EQ(other.ended_by(), SIGTERM);
}

// Everybody whom reading the whole machine finds, in whatever way it came to be.
TEST_P(TreeTest, ALookFindsWhomReadingTheWholeMachineFinds) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup may be made here";
  start([&] {
    if (::fork() == 0) {  // an orphan with a session of its own
      ::setsid();
      if (::fork() == 0) {
        ready();
        wait_for_ever();
      }
      ::_exit(0);
    }
    std::thread([&] {  // a child of a thread that is not the first
      if (::fork() == 0) {
        (void)::fork();
        ready();
        wait_for_ever();
      }
      ready();
      wait_for_ever();
    })
        .join();
  });
  wait_ready(4);
  const Tree job = tree();
  const Instant end = clock_.now() + 20s;
  // Who is between two parents is with neither for a moment.
  const auto names = [](std::vector<ProcessEntry> all) {
    std::set<pid_t> pids;
    for (const ProcessEntry& one : all) pids.insert(one.pid);
    return pids;
  };
  while (names(job.members()).size() < 4 && clock_.now() < end) children_.sweep();
  EXPECT_EQ(names(job.members()).size(), 4U);
  EXPECT_EQ(names(tree().look()), names(job.members())) << "by one that has seen nobody before";
  job.kill_pass();
  Ending ending(job, root_, {.signal = 0});
  (void)finish(ending);
  EXPECT_TRUE(all_gone(20'000));
}

TEST_P(TreeTest, ALookTellsOfThoseThatEndedAndNobodyWaitedFor) {
  if (lacks_cgroup()) GTEST_SKIP() << "no cgroup may be made here";
  start([&] {
    if (::fork() == 0) ::_exit(0);
    siginfo_t info{};
    ::waitid(P_ALL, 0, &info, WEXITED | WNOWAIT);  // it has ended, and stays
    ready();
    wait_for_ever();
  });
  wait_ready(1);
  const Tree job = tree();
  EXPECT_EQ(job.look().size(), 1U);
  ASSERT_EQ(job.unwaited().size(), 1U);
  EXPECT_EQ(job.unwaited()[0].parent, root_.pid());
  Ending ending(job, root_, {.signal = 0});
  (void)finish(ending);
  EXPECT_TRUE(all_gone(20'000));
}

std::string stat_line(pid_t pid, pid_t parent, std::uint64_t start, unsigned threads = 1) {
  return std::to_string(pid) + " (x) S " + std::to_string(parent) + " 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 " +
         std::to_string(threads) + " 0 " + std::to_string(start) + " 1 1";
}

// A machine with ourselves, a job and somebody of whom only a reader of the whole machine knows.
class SmallMachine : public testing::Test {
 protected:
  SmallMachine() : job_(Tree::of_job(Process::self(), nullptr, {})) {
    add(::getpid(), 1, std::to_string(kJob) + " ");
    add(kJob, ::getpid(), std::to_string(kWorker) + " ");
    add(kWorker, kJob, "");
    machine_.write("proc/" + std::to_string(kHidden) + "/stat", stat_line(kHidden, kJob, start_));
  }
  void add(pid_t pid, pid_t parent, const std::string& children) const {
    const std::string folder = "proc/" + std::to_string(pid);
    machine_.write(folder + "/stat", stat_line(pid, parent, start_));
    machine_.write(folder + "/task/" + std::to_string(pid) + "/children", children);
  }

  static constexpr pid_t kJob = 900'000'001;
  static constexpr pid_t kWorker = 900'000'002;
  static constexpr pid_t kHidden = 900'000'003;
  const std::uint64_t start_ = Process::self().start_ticks();
  const TestTree machine_;
  const Tree job_;
};

TEST_F(SmallMachine, ALookReadsNobodyElse) {
  EXPECT_EQ(job_.look(machine_.root()).size(), 2U);
  EXPECT_EQ(job_.members(machine_.root()).size(), 3U);
}

TEST_F(SmallMachine, WhereTheKernelHasNoListsEverybodyIsRead) {
  std::filesystem::remove(machine_.root().proc + "/" + std::to_string(kJob) + "/task/" + std::to_string(kJob) +
                          "/children");
  EXPECT_EQ(job_.look(machine_.root()).size(), 3U);
}

// A job with more threads than the machine has processes: the short way would be the longer one.
TEST_F(SmallMachine, WhereTheListsAreManyEverybodyIsRead) {
  const std::string folder = "proc/" + std::to_string(kJob);
  machine_.write(folder + "/stat", stat_line(kJob, ::getpid(), start_, 100));
  for (int thread = 1; thread < 100; ++thread)
    machine_.write(folder + "/task/" + std::to_string(kJob + 100 + thread) + "/children", "");
  EXPECT_EQ(job_.look(machine_.root()).size(), 3U);
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
                           .standard_output = write_.get(),
                           .own_session = true});  // as helpers are started
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

TEST(Tree, ARootWhoseNumberIsSomebodyElsesByNowIsNotContained) {
  const TestTree machine;
  const Process us = Process::self();
  const Tree tree = Tree::of_process(us);
  const std::string file = "proc/" + std::to_string(us.pid()) + "/stat";
  machine.write(file, stat_line(us.pid(), 1, us.start_ticks()));
  EXPECT_TRUE(tree.contains(us.pid(), machine.root()));
  machine.write(file, stat_line(us.pid(), 1, us.start_ticks() + 1));
  EXPECT_FALSE(tree.contains(us.pid(), machine.root()));
}

TEST(Tree, ASignalReachesNobodyWhoHasTheNumberOfAMemberThatEnded) {
  const pid_t root_pid = ::fork();
  if (root_pid == 0) wait_for_ever();
  const pid_t other = ::fork();
  if (other == 0) wait_for_ever();
  const Process root = *Process::open(root_pid);
  const Process stranger = *Process::open(other);
  // As listed before `other` got its number: another process, started earlier, below the root.
  const TestTree machine;
  machine.write("proc/" + std::to_string(root_pid) + "/stat", stat_line(root_pid, 1, root.start_ticks()));
  machine.write("proc/" + std::to_string(other) + "/stat", stat_line(other, root_pid, stranger.start_ticks() - 1));
  const Tree tree = Tree::of_process(root);
  ASSERT_EQ(tree.members(machine.root()).size(), 2U);
  EXPECT_EQ(tree.signal(SIGKILL, SignalOrder::deepest_first, machine.root()).reached, 1U) << "the root alone";
  int status = 0;
  EXPECT_EQ(::waitpid(root_pid, &status, 0), root_pid);
  EXPECT_EQ(::waitpid(other, &status, WNOHANG), 0) << "it lives";
  ::kill(other, SIGKILL);
  ::waitpid(other, &status, 0);
}

TEST(Tree, NothingIsGoneWhileItsCgroupIsPopulated) {
  const pid_t pid = ::fork();
  if (pid == 0) wait_for_ever();
  const Process root = *Process::open(pid);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  const TestTree machine;
  machine.write("proc/self/mountinfo", "41 31 0:38 / " + machine.path() + "/cg rw - cgroup2 cgroup2 rw\n");
  machine.write("proc/self/cgroup", "0::/job\n");
  machine.write("cg/job/cgroup.events", "populated 1\nfrozen 0\n");  // by somebody whom no list shows
  const auto cgroup = Cgroup::own(machine.root());
  ASSERT_TRUE(cgroup);
  const Tree job = Tree::of_job(root, &*cgroup, own_children());
  EXPECT_FALSE(job.gone());
  machine.write("cg/job/cgroup.events", "populated 0\nfrozen 0\n");
  EXPECT_TRUE(job.gone());
}

TEST(Tree, IsHaltedWhereTheMainThreadHasEndedAndTheOthersAreStopped) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    pthread_t worker{};
    ::pthread_create(&worker, nullptr, [](void*) -> void* { wait_for_ever(); }, nullptr);
    ::syscall(SYS_exit, 0);  // the main thread alone
  }
  const Process root = *Process::open(pid);
  const Tree tree = Tree::of_process(root);
  const SystemClock clock;
  const auto soon = [&](const auto& is_so) {
    const Instant enough = clock.now() + 10s;
    while (!is_so() && clock.now() < enough) ::usleep(1000);
    return is_so();
  };
  EXPECT_TRUE(soon([&] {
    const auto entry = read_process_entry(pid);
    return entry && entry->state == 'Z' && entry->threads > 1;
  }));
  EXPECT_FALSE(tree.is_halted());
  ::kill(pid, SIGSTOP);
  EXPECT_TRUE(soon([&] { return tree.is_halted(); }));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST(TreeOfGroup, AGroupHasOnlyThoseWhoAreInIt) {
  std::array<pid_t, 2> pids{};
  for (const bool own : {true, false}) {
    pid_t& pid = pids.at(own ? 0 : 1);
    pid = ::fork();
    if (pid == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;) ::pause();
    }
    ASSERT_GT(pid, 0);
    if (own) {
      ASSERT_EQ(::setpgid(pid, pid), 0);
    }
  }
  const auto tree = Tree::of_group(pids[0]);
  ASSERT_TRUE(tree);
  std::vector<pid_t> found;
  // Who looks and its children are never among them: so somebody else looks.
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const pid_t looks = ::fork();
  if (looks == 0) {
    for (const ProcessEntry& one : tree->members()) (void)!::write(ends[1], &one.pid, sizeof one.pid);
    ::_exit(0);
  }
  ::close(ends[1]);
  for (pid_t pid = 0; ::read(ends[0], &pid, sizeof pid) == sizeof pid;) found.push_back(pid);
  ::close(ends[0]);
  for (const pid_t pid : pids) ::kill(pid, SIGKILL);
  for (const pid_t pid : {pids[0], pids[1], looks}) ::waitpid(pid, nullptr, 0);
  EXPECT_EQ(found, std::vector<pid_t>{pids[0]});
}

TEST(TreeOfContainer, APidNamespaceIsOne) {
  constexpr int kNoNamespace = 77;
  const pid_t child = ::fork();
  if (child == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNoNamespace);
    const pid_t first = ::fork();
    if (first == 0) ::_exit(Tree::of_container() ? 0 : 1);
    int status = 0;
    ::_exit(::waitpid(first, &status, 0) == first && status == 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WEXITSTATUS(status) == kNoNamespace) GTEST_SKIP() << "no namespaces here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace lull
