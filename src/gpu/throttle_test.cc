#include "gpu/snapshot.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

TEST(Throttle, AnIdleGpuDoesNotThrottle) {
  EXPECT_FALSE(is_throttling(0));
  EXPECT_FALSE(is_throttling(0x1));    // idle
  EXPECT_FALSE(is_throttling(0x102));  // an application's or the display's clocks
  EXPECT_TRUE(throttle_text(0x113).empty());
}

TEST(Throttle, ReasonsThatSlowDownCount) {
  EXPECT_TRUE(is_throttling(0x4));
  EXPECT_TRUE(is_throttling(0x41));
  EXPECT_EQ(throttle_text(0x24), (std::vector<std::string_view>{"power_cap", "thermal"}));
}

using namespace std::chrono_literals;

// "For 0s" would be no time at all.
TEST(Unanswered, LessThanASecondIsToldInMilliseconds) {
  EXPECT_EQ(unanswered_text(400ms), "driver has not answered for 400ms");
  EXPECT_EQ(unanswered_text(0s), "driver has not answered for 1ms");
  EXPECT_EQ(unanswered_text(999'999us), "driver has not answered for 999ms");
  EXPECT_EQ(unanswered_text(1999ms), "driver has not answered for 1s");
  EXPECT_EQ(unanswered_text(90s), "driver has not answered for 1m30s");
}

}  // namespace
}  // namespace lull
