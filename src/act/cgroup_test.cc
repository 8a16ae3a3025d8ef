#include "act/cgroup.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "act/tree_test.h"
#include "sense/test_tree.h"

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
