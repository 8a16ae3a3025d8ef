#include "act/cgroup.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "act/tree_test.h"
#include "sense/file_tree_test.h"

namespace lull {
namespace {

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
  EXPECT_EQ(find_own_cgroup("50 1 0:38 / /a\\134b\\011c rw - cgroup2 cgroup2 rw\n", "0::/\n"), "/a\\b\tc");
  EXPECT_EQ(find_own_cgroup(kPart, "0::/docker/abcdef\n"), std::nullopt);
  EXPECT_EQ(find_own_cgroup(kPart, "0::/../outside\n"), std::nullopt);
  EXPECT_EQ(find_own_cgroup(kHybrid, "4:memory:/x\n"), std::nullopt);
  EXPECT_EQ(find_own_cgroup("", "0::/\n"), std::nullopt);
}

TEST(Cgroup, FreezersOfBothKindsAreSeen) {
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

TEST(Cgroup, RemovalTakesTheEmptyOnesBelowAlong) {
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

TEST(Cgroup, WhoIsInItIsToldByTheWholePath) {
  const TestTree machine;
  machine.write("proc/self/mountinfo", "41 31 0:38 / " + machine.path() + "/cg rw - cgroup2 cgroup2 rw\n");
  machine.write("proc/self/cgroup", "0::/user.slice/lull-5-77-1\n");
  machine.write("cg/user.slice/lull-5-77-1/cgroup.procs", "");
  machine.write("proc/10/cgroup", "0::/user.slice/lull-5-77-1\n");
  machine.write("proc/11/cgroup", "0::/user.slice/lull-5-77-1/below\n");
  machine.write("proc/12/cgroup", "0::/user.slice/mallory/lull-5-77-1\n");
  machine.write("proc/13/cgroup", "0::/user.slice/lull-5-77-10\n");
  machine.write("proc/14/cgroup", "3:name=x:/user.slice/lull-5-77-1\n0::/elsewhere\n");
  machine.write("proc/15/cgroup", "0::/user.slice\n");
  const auto own = Cgroup::own(machine.root());
  ASSERT_TRUE(own) << own.error().message();
  for (const pid_t pid : {10, 11}) EXPECT_TRUE(own->holds(pid, machine.root())) << pid;
  for (const pid_t pid : {12, 13, 14, 15, 16}) EXPECT_FALSE(own->holds(pid, machine.root())) << pid;
}

TEST(Cgroup, TheFreezerIsNotFoundByTheNameOfAFolder) {
  const TestTree machine;
  machine.write("proc/self/mountinfo", "37 31 0:34 / " + machine.path() + "/v1 rw - cgroup cgroup rw,freezer\n");
  machine.write("proc/7/cgroup", "6:freezer:/\n0::/mine/x:freezer:/box\n");
  machine.write("v1/box/freezer.state", "FROZEN\n");
  machine.write("v1/freezer.state", "THAWED\n");
  EXPECT_FALSE(is_any_frozen({7}, machine.root()));
}

TEST(Cgroup, ItsMakerIsWhoOwnsItOrOneAboveIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give folders away";
  const TestTree machine;
  machine.write("proc/self/mountinfo", "41 31 0:38 / " + machine.path() +
                                           "/v2 rw - cgroup2 cgroup2 rw\n"
                                           "42 31 0:39 / " +
                                           machine.path() + "/v1 rw - cgroup cgroup rw,cpu,cpuacct\n");
  const auto folder = [&](const std::string& path, uid_t maker) {
    std::filesystem::create_directories(machine.at(path));
    ASSERT_EQ(::chown(machine.at(path).c_str(), maker, maker), 0);
  };
  folder("v2/a/b/c", 0);
  folder("v2/u", 70'001);
  folder("v2/u/b", 0);
  folder("v2/u/d", 70'002);
  folder("v1/j", 70'003);
  EXPECT_EQ(maker_of_cgroup("0::/a/b/c/d\n", "/a/b/c", machine.root()), 0U);
  EXPECT_EQ(maker_of_cgroup("0::/u/b\n", "/u/b", machine.root()), 70'001U);
  EXPECT_EQ(maker_of_cgroup("0::/u/d\n", "/u/d", machine.root()), kSeveralMakers);
  EXPECT_EQ(maker_of_cgroup("4:cpu,cpuacct:/j\n0::/\n", "/j", machine.root()), 70'003U);
  EXPECT_EQ(maker_of_cgroup("0::/gone\n", "/gone", machine.root()), std::nullopt);
  EXPECT_EQ(maker_of_cgroup("4:memory:/a\n", "/a", machine.root()), std::nullopt) << "no such hierarchy is mounted";
  EXPECT_EQ(maker_of_cgroup("0::/../a\n", "/../a", machine.root()), std::nullopt) << "outside of what we see";
  // A part of the hierarchy is mounted in the folder of a user who made nothing of it.
  folder("home", 70'004);
  folder("home/part", 0);
  folder("home/part/x", 0);
  folder("home/part/y", 70'005);
  machine.write("proc/self/mountinfo", "43 31 0:38 /top/mine " + machine.path() + "/home/part rw - cgroup2 c rw\n");
  EXPECT_EQ(maker_of_cgroup("0::/top/mine/y\n", "/top/mine/y", machine.root()), 70'005U);
  EXPECT_EQ(maker_of_cgroup("0::/top/mine/x\n", "/top/mine/x", machine.root()), std::nullopt)
      << "who made /top cannot be seen";
}

}  // namespace
}  // namespace lull
