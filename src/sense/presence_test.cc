#include "sense/presence.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utmpx.h>

#include <cmath>
#include <cstring>

#include "sense/test_tree.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class People : public ::testing::Test {
 protected:
  People() { clock_.advance(10'000s); }

  // Whose owner last typed so long ago, as far as the kernel's steps of 8 s tell.
  void terminal(const std::string& name, std::int64_t seconds) const {
    tree_.write("dev/" + name, "");
    const timespec at{10'000 - seconds - 8, 0};
    const timespec times[2] = {at, at};
    ASSERT_EQ(::utimensat(AT_FDCWD, tree_.at("dev/" + name).c_str(), times, 0), 0);
  }
  static std::string logged_in(const char* line, short type = USER_PROCESS) {
    utmpx entry{};
    entry.ut_type = type;
    std::strncpy(entry.ut_line, line, sizeof entry.ut_line - 1);
    return {reinterpret_cast<const char*>(&entry), sizeof entry};
  }
  double idle(const std::vector<uid_t>& ignore = {}) const {
    return user_idle_seconds({.ignore = ignore, .utmp = tree_.at("utmp"), .root = tree_.root()}, clock_);
  }

  TestTree tree_;
  ManualClock clock_;
};

TEST_F(People, AtTerminalsOfOtherNamesAreFoundByUtmp) {
  terminal("pts/0", 300);
  terminal("ttyS0", 7);
  terminal("hvc0", 5);
  EXPECT_EQ(idle(), 300);
  tree_.write("utmp", logged_in("ttyS0") + logged_in("pts/0"));
  EXPECT_EQ(idle(), 7);
  tree_.write("utmp", logged_in("hvc0", DEAD_PROCESS) + logged_in("hvc0", LOGIN_PROCESS));
  EXPECT_EQ(idle(), 300) << "nobody is logged in there";
}

TEST_F(People, AreNotMadeOfAUtmpThatIsNone) {
  terminal("pts/0", 300);
  terminal("hvc0", 5);
  tree_.write("hvc0", "");
  tree_.write("utmp", logged_in("hvc0").substr(0, 100));
  EXPECT_EQ(idle(), 300) << "cut off";
  tree_.write("utmp", logged_in("../hvc0") + logged_in("") + logged_in("no-such-line"));
  EXPECT_EQ(idle(), 300);
  tree_.write("utmp", std::string(3 * sizeof(utmpx), '\xff'));
  EXPECT_EQ(idle(), 300);
}

TEST_F(People, WhoAreLeftOutDoNotCount) {
  terminal("pts/0", 20);
  terminal("ttyS0", 5);
  tree_.write("utmp", logged_in("ttyS0"));
  EXPECT_EQ(idle({::geteuid() + 1}), 5);
  EXPECT_EQ(idle({::geteuid()}), 10'000 - 8) << "nobody since the machine came up";
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(tree_.at("dev/pts/0").c_str(), 12345, 12345), 0);
  const auto found = typists({.ignore = {0}, .utmp = tree_.at("utmp"), .root = tree_.root()}, clock_);
  ASSERT_TRUE(found && found->size() == 1);
  EXPECT_EQ(found->front().user, 12345U);
  EXPECT_EQ(found->front().idle, 20);
}

TEST_F(People, AtTerminalsThatCannotBeLookedAtAreUnknown) {
  tree_.write("dev/pts", "");  // no folder
  EXPECT_TRUE(std::isnan(idle()));
}

}  // namespace
}  // namespace lull
