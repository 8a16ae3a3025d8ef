#include "fill/people.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(People, LogindTellsWhoIsAtAScreenAndForHowLongNot) {
  const auto found = graphical_sessions(
      "Name=ada\nType=wayland\nClass=user\nIdleHint=no\nIdleSinceHintMonotonic=0\n\n"
      "Name=bob\nType=x11\nClass=user\nIdleHint=yes\nIdleSinceHintMonotonic=40000000\n\n"
      "Name=gdm\nType=wayland\nClass=greeter\nIdleHint=no\n\n"
      "Name=eve\nType=tty\nClass=user\nIdleHint=no\n",
      100'000'000);
  ASSERT_EQ(found.size(), 2U) << "terminals are looked at themselves, and a greeter is nobody";
  EXPECT_EQ(found[0].first, "ada");
  EXPECT_FALSE(found[0].second);
  EXPECT_EQ(found[1].first, "bob");
  EXPECT_EQ(found[1].second, Duration(60s));
  EXPECT_TRUE(graphical_sessions("", 0).empty());
  EXPECT_TRUE(graphical_sessions("nonsense\n\n=\n", 0).empty());
}

}  // namespace
}  // namespace lull
