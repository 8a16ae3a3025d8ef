#include "sense/presence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
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

// A terminal of the real kernel's with a session; the clocks are the test's.
class TypedBeforeTest : public SetClockTest {
 protected:
  TypedBeforeTest() {
    int master = -1;
    int slave = -1;
    if (::openpty(&master, &slave, nullptr, nullptr, nullptr) != 0) std::abort();
    master_ = Fd(master);
    slave_ = Fd(slave);
    char name[64];
    if (::ttyname_r(slave, name, sizeof name) != 0) std::abort();
    tree_.link("dev/pts/0", name);
    // It was opened 100 s ago, and 40 s ago somebody has typed.
    struct stat info{};
    if (::fstat(slave, &info) != 0) std::abort();
    const timespec times[2] = {{info.st_ctim.tv_sec + 60, 0}, {0, UTIME_OMIT}};
    if (::futimens(slave, times) != 0 || ::fstat(slave, &info) != 0) std::abort();
    number_ = minor(info.st_rdev);
    const Duration opened = std::chrono::seconds(info.st_ctim.tv_sec) + std::chrono::nanoseconds(info.st_ctim.tv_nsec);
    clock_.ahead = opened + 100s - clock_.now().time_since_epoch();
  }
  void leader_started(Duration ago, unsigned terminal) const {
    const std::int64_t ticks = (clock_.now().time_since_epoch() - ago) / 1s * ::sysconf(_SC_CLK_TCK);
    tree_.write("proc/4711/stat",
                fmt::format("4711 (bash) S 1 4711 4711 {} 4711 4194560 1 2 3 4 5 6 7 8 20 0 1 0 {} 1 1",
                            136U << 8 | terminal, ticks));
  }

  Fd master_;
  Fd slave_;
  unsigned number_ = 0;
};

TEST_F(TypedBeforeTest, CountsFromTheKeyWhereTheClockWasNotSet) {
  leader_started(100s, number_);
  EXPECT_NEAR(presence_.user_idle(clock_), 40 - 8, 2);
}

TEST_F(TypedBeforeTest, CountsFromTheFirstLookWhereTheClockWasSet) {
  leader_started(100s, number_);
  for (const Duration by : {Duration(2h), Duration(-20s)}) {
    clock_.ahead += by;
    Presence late({.ignore = {}, .utmp = {}, .root = tree_.root()});
    EXPECT_EQ(late.user_idle(clock_), 0) << by / 1s;
    clock_.advance(20s);
    EXPECT_EQ(late.user_idle(clock_), 20 - 8) << by / 1s;
    clock_.ahead -= by;
  }
}

TEST_F(TypedBeforeTest, CountsFromTheFirstLookWhereNobodyTells) {
  EXPECT_EQ(presence_.user_idle(clock_), 0) << "no process leads a session there";
  leader_started(100s, number_ + 1);
  EXPECT_EQ(Presence({.ignore = {}, .utmp = {}, .root = tree_.root()}).user_idle(clock_), 0);
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
