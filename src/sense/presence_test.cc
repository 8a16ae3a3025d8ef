#include "sense/presence.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utmpx.h>

#include <cmath>
#include <cstring>

#include "sense/file_tree_test.h"

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
    return Presence({.ignore = ignore, .utmp = tree_.at("utmp"), .root = tree_.root()}).user_idle(clock_);
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
  const auto found = Presence({.ignore = {0}, .utmp = tree_.at("utmp"), .root = tree_.root()}).typists(clock_);
  ASSERT_TRUE(found && found->size() == 1);
  EXPECT_EQ(found->front().user, 12345U);
  EXPECT_EQ(found->front().idle, 20);
}

TEST_F(People, AtTerminalsThatCannotBeLookedAtAreUnknown) {
  tree_.write("dev/pts", "");  // no folder
  EXPECT_TRUE(std::isnan(idle()));
}

// A machine whose wall clock is set while it runs.
class SetClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  WallTime wall() const override { return WallTime(now_.time_since_epoch() + ahead); }
  void advance(Duration by) { now_ += by; }
  Duration ahead{};

 private:
  Instant now_{10'000s};
};

class SetClockTest : public ::testing::Test {
 protected:
  // A key now, as the kernel notes it.
  void type(const std::string& name) const {
    tree_.write("dev/" + name, "");
    const auto at = std::chrono::duration_cast<std::chrono::seconds>(clock_.wall().time_since_epoch()).count();
    const timespec times[2] = {{at, 0}, {at, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, tree_.at("dev/" + name).c_str(), times, 0), 0);
  }

  TestTree tree_;
  SetClock clock_;
  Presence presence_{{.ignore = {}, .utmp = {}, .root = tree_.root()}};
};

TEST_F(SetClockTest, UserIdleDoesNotJumpWithTheWallClock) {
  type("pts/0");
  EXPECT_EQ(presence_.user_idle(clock_), 0);
  clock_.advance(20s);
  EXPECT_EQ(presence_.user_idle(clock_), 20 - 8);
  for (const auto by : {2h, -4h, 48h}) {
    clock_.ahead += by;
    const double before = presence_.user_idle(clock_);
    clock_.advance(1s);
    EXPECT_EQ(presence_.user_idle(clock_), before + 1) << by.count();
  }
  type("pts/0");
  EXPECT_EQ(presence_.user_idle(clock_), 0) << "a key after it was set";
  clock_.advance(60s);
  EXPECT_EQ(presence_.user_idle(clock_), 60 - 8);
}

TEST_F(SetClockTest, AKeyThatIsSeenTogetherWithALeapIsOneOfNow) {
  type("pts/0");
  clock_.advance(100s);
  EXPECT_EQ(presence_.user_idle(clock_), 100 - 8);
  type("pts/0");
  clock_.ahead += 2h;  // in the same interval
  clock_.advance(5s);
  EXPECT_EQ(presence_.user_idle(clock_), 0);
  clock_.advance(30s);
  EXPECT_EQ(presence_.user_idle(clock_), 30 - 8);
}

TEST_F(SetClockTest, ATerminalThatAppearsLaterIsNotOlderThanThePreviousScan) {
  EXPECT_EQ(presence_.user_idle(clock_), 10'000 - 8) << "nobody since the machine came up";
  clock_.advance(10s);
  type("pts/7");
  clock_.advance(20s);
  EXPECT_EQ(presence_.user_idle(clock_), 20 - 8) << "the clock was not set: its time is good";
  clock_.ahead += 2h;
  clock_.advance(1s);
  type("pts/8");
  clock_.ahead += 2h;
  clock_.advance(9s);
  EXPECT_EQ(presence_.user_idle(clock_), 0) << "of a terminal that came with a leap nothing else is known";
}

TEST_F(SetClockTest, SmallCorrectionsOfTheClockAreNoLeap) {
  type("pts/0");
  EXPECT_EQ(presence_.user_idle(clock_), 0);
  for (int i = 0; i < 100; ++i) {
    clock_.advance(10s);
    clock_.ahead += 500ms;
    EXPECT_EQ(presence_.user_idle(clock_), std::max(0, 10 * (i + 1) - 8));
  }
  type("pts/0");
  clock_.advance(10s);
  clock_.ahead -= 500ms;
  EXPECT_NEAR(presence_.user_idle(clock_), 10 - 8, 1);
}

}  // namespace
}  // namespace lull
