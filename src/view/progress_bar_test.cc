#include "view/screen.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(ProgressBar, ShowsNothingWithinTheFirstSecond) {
  ProgressBar bar(Instant{});
  EXPECT_EQ(bar.draw(0.5, Instant(999ms)), "");
  EXPECT_EQ(bar.clear(), "");
}

TEST(ProgressBar, SaysHowMuchIsDoneAndHowLongTheRestWillTake) {
  ProgressBar bar(Instant{});
  EXPECT_EQ(bar.draw(0.25, Instant(10s)), "\r\033[K[##########..............................]  25 %, 30s left");
  EXPECT_EQ(bar.draw(0.26, Instant(10050ms)), "");
  EXPECT_NE(bar.draw(0.26, Instant(10100ms)), "");
  EXPECT_EQ(bar.clear(), "\r\033[K");
}

}  // namespace
}  // namespace lull
