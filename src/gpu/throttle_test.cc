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

}  // namespace
}  // namespace lull
