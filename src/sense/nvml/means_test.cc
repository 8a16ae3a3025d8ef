#include "sense/nvml/meters.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class Energy : public testing::Test {
 protected:
  std::optional<double> at(Duration since, std::uint64_t millijoules) {
    return meter_.watts(millijoules, Instant(seconds(1000) + since));
  }
  EnergyMeter meter_;
};

TEST_F(Energy, IsTheMeanBetweenTwoReadings) {
  EXPECT_FALSE(at(seconds(0), 5'000'000));
  EXPECT_DOUBLE_EQ(*at(seconds(10), 6'000'000), 100);
  EXPECT_DOUBLE_EQ(*at(seconds(11), 6'300'000), 300);
}

TEST_F(Energy, TooShortATimeOrACounterThatDoesNotMoveWaitsForMore) {
  EXPECT_FALSE(at(seconds(0), 1'000'000));
  EXPECT_FALSE(at(milliseconds(20), 1'010'000));
  EXPECT_FALSE(at(milliseconds(150), 1'000'000)) << "went back below what was not taken as a basis";
  EXPECT_DOUBLE_EQ(*at(seconds(1), 1'200'000), 200) << "over the whole second";
}

TEST_F(Energy, ACounterThatRunsBackwardsOrLeapsIsABeginning) {
  EXPECT_FALSE(at(seconds(0), 9'000'000));
  EXPECT_FALSE(at(seconds(1), 1'000)) << "the driver was loaded anew";
  EXPECT_DOUBLE_EQ(*at(seconds(2), 71'000), 70);
  EXPECT_FALSE(at(seconds(3), 90'000'000'000)) << "no card draws 90 MW";
  EXPECT_DOUBLE_EQ(*at(seconds(4), 90'000'070'000), 70);
  EXPECT_FALSE(at(seconds(4), 90'000'080'000)) << "no time has passed";
  meter_.forget();
  EXPECT_FALSE(at(seconds(6), 90'000'200'000));
}

}  // namespace
}  // namespace lull
