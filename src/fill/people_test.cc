#include "fill/people.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pwd.h>
#include <unistd.h>

#include "act/children.h"

// A name service that takes its time for one name.
extern "C" passwd* getpwnam(const char* name) {
  if (std::string_view(name) == "slow") ::sleep(5);
  return reinterpret_cast<passwd* (*)(const char*)>(::dlsym(RTLD_NEXT, "getpwnam"))(name);
}

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(People, LogindTellsWhoIsAtAScreenAndForHowLongNot) {
  const auto found = graphical_sessions(
      "Name=ada\nUser=1001\nType=wayland\nClass=user\nIdleHint=no\nIdleSinceHintMonotonic=0\n\n"
      "Name=bob\nType=x11\nClass=user\nIdleHint=yes\nIdleSinceHintMonotonic=40000000\n\n"
      "Name=gdm\nType=wayland\nClass=greeter\nIdleHint=no\n\n"
      "Name=eve\nType=tty\nClass=user\nIdleHint=no\n",
      100'000'000);
  ASSERT_EQ(found.size(), 2U) << "terminals are looked at themselves, and a greeter is nobody";
  EXPECT_EQ(found[0].name, "ada");
  EXPECT_EQ(found[0].user, 1001U);
  EXPECT_FALSE(found[0].idle);
  EXPECT_EQ(found[1].name, "bob");
  EXPECT_FALSE(found[1].user);
  EXPECT_EQ(found[1].idle, Duration(60s));
  EXPECT_TRUE(graphical_sessions("", 0).empty());
  EXPECT_TRUE(graphical_sessions("nonsense\n\n=\n", 0).empty());
}

TEST(People, ANameServiceThatHangsIsNotWaitedFor) {
  const SystemClock clock;
  const auto loop = *Loop::create(clock);
  Children children;
  Helpers helpers(*loop, children, false);
  PeopleSettings settings;
  settings.except_user = {"slow", "root", "4711", "no-such-user"};
  const Instant began = clock.now();
  const People people(*loop, helpers, settings, nullptr);
  EXPECT_LT(clock.now() - began, 4s);
  EXPECT_EQ(people.unknown(), (std::vector<std::string>{"slow: the name service does not answer",
                                                        "no-such-user: there is no such user"}));
}

}  // namespace
}  // namespace lull
