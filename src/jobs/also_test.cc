#include "jobs/also.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "sense/file_tree_test.h"

namespace lull {
namespace {

const std::string kId = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

void process(const TestTree& tree, pid_t pid, const std::string& cgroup, uid_t user = ::geteuid()) {
  const std::string folder = "proc/" + std::to_string(pid);
  tree.write(folder + "/stat", std::to_string(pid) + " (x) S 1 1 1 0 0 0 0 0 0 0 1 0 0 0 20 0 1 0 77 0 0\n");
  tree.write(folder + "/cgroup", cgroup);
  tree.write(folder + "/status", fmt::format("Name:\tx\nUid:\t{0}\t{0}\t{0}\t{0}\n", user));
}

TEST(Also, CgroupsByPathAndContainersById) {
  TestTree tree;
  tree.write("proc/self/mountinfo", "41 31 0:38 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw\n");
  process(tree, 10, "0::/system.slice/ray.service/worker\n");
  process(tree, 11, "0::/system.slice/ray.service2\n");
  process(tree, 12, "0::/system.slice/docker-" + kId + ".scope\n");
  process(tree, 13, "12:devices:/docker/" + kId + "\n0::/\n");
  const auto pids = [&](const std::vector<std::string>& words) {
    const auto also = Also::parse(words, tree.root());
    EXPECT_TRUE(also) << also.error().what;
    std::vector<pid_t> found;
    for (const ProcessEntry& one : also->members()) {
      EXPECT_TRUE(also->contains(one.pid));
      found.push_back(one.pid);
    }
    return found;
  };
  EXPECT_EQ(pids({"/system.slice/ray.service"}), std::vector<pid_t>{10});
  EXPECT_EQ(pids({"/sys/fs/cgroup/system.slice/ray.service/"}), std::vector<pid_t>{10});
  EXPECT_EQ(pids({"system.slice/ray.service"}), std::vector<pid_t>{10});
  EXPECT_EQ(pids({kId.substr(0, 12)}), (std::vector<pid_t>{12, 13}));
  EXPECT_EQ(pids({kId, "/system.slice/ray.service2"}), (std::vector<pid_t>{11, 12, 13}));
  const auto later = Also::parse({"/system.slice/later.service", kId}, tree.root());
  ASSERT_TRUE(later);
  EXPECT_EQ(later->nobody_in(), std::vector<std::string>{"/system.slice/later.service"});
  EXPECT_FALSE(later->contains(10));
  EXPECT_FALSE(later->contains(99));
}

TEST(Also, AContainerThatAnotherUserMadeIsNotFoundByItsDigits) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  TestTree tree;
  tree.write("proc/self/mountinfo", "41 31 0:38 / " + tree.path() + "/cg rw - cgroup2 cgroup2 rw\n");
  tree.write("cg/docker/" + kId + "/cgroup.procs", "");
  tree.write("cg/theirs/" + kId + "/cgroup.procs", "");
  for (const std::string& folder : {std::string("cg/theirs"), "cg/theirs/" + kId})
    ASSERT_EQ(::chown(tree.at(folder).c_str(), 1001, 1001), 0);
  process(tree, 10, "0::/docker/" + kId + "\n", 1000);
  process(tree, 11, "0::/theirs/" + kId + "\n", 1001);
  process(tree, 12, "0::/theirs/" + kId + "\n", 0);
  const auto also = Also::parse({kId}, tree.root());
  ASSERT_TRUE(also);
  EXPECT_TRUE(also->contains(10));
  EXPECT_FALSE(also->contains(11));
  EXPECT_FALSE(also->contains(12));
  const auto by_path = Also::parse({"/theirs/" + kId}, tree.root());
  EXPECT_TRUE(by_path && by_path->contains(11)) << "by its whole path";
}

TEST(Also, EachOfSeveralProcessesIsFoundWithoutItsCgroup) {
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) {
    children.push_back(::fork());
    if (children.back() == 0)
      for (::alarm(60);;) ::pause();
  }
  const TestTree nothing_to_read;
  const auto also = Also::parse({std::to_string(children[0]), std::to_string(children[1])}, nothing_to_read.root());
  ASSERT_TRUE(also);
  for (const pid_t child : children) {
    EXPECT_TRUE(also->contains(child));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

TEST(Also, AProcessAndItsDescendants) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    const pid_t grandchild = ::fork();
    if (grandchild == 0) {
      ::alarm(60);
      for (;;) ::pause();
    }
    (void)!::write(ends[1], &grandchild, sizeof grandchild);
    for (;;) ::pause();
  }
  pid_t grandchild = 0;
  ASSERT_EQ(::read(ends[0], &grandchild, sizeof grandchild), static_cast<ssize_t>(sizeof grandchild));
  auto also = Also::parse({std::to_string(child)});
  {
    ASSERT_TRUE(also);
    EXPECT_TRUE(also->contains(child));
    EXPECT_TRUE(also->contains(grandchild));
    EXPECT_FALSE(also->contains(::getpid()));
    EXPECT_EQ(also->members().size(), 2U);
    EXPECT_TRUE(also->nobody_in().empty());
    EXPECT_TRUE(also->take_ended().empty());
  }
  ::kill(grandchild, SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(also->over());
  const SystemClock clock;
  std::vector<std::string> ended;
  for (const Instant limit = clock.now() + std::chrono::seconds(10); ended.empty() && clock.now() < limit;)
    ended = also->take_ended();  // the grandchild is its new parent's to collect
  EXPECT_EQ(ended, std::vector{std::to_string(child)});
  EXPECT_TRUE(also->over());
  EXPECT_TRUE(also->take_ended().empty()) << "each once";
  EXPECT_FALSE(Also::parse({std::to_string(child)})) << "there is no such process any more";
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(Also, WhatIsNothingOfTheKindIsRefused) {
  for (const std::string word : {"", "ray", "-5", "0", "999999999", "12345678901", "/", "deadbeef"})
    EXPECT_FALSE(Also::parse({word})) << word;
  EXPECT_TRUE(Also::parse({})->empty());
}

}  // namespace
}  // namespace lull
