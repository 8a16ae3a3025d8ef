#include "base/time_range.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace lull {
namespace {

constexpr std::int64_t kHour = 3'600'000'000'000;
const WallTime kNow{std::chrono::sys_days(std::chrono::year(2026) / 11 / 17) + std::chrono::hours(12)};

class TimeRangeOption : public testing::Test {
 protected:
  // Three hours east of Greenwich.
  TimeRangeOption() {
    ::setenv("TZ", "LOC-3", 1);
    ::tzset();
  }
  ~TimeRangeOption() override {
    ::unsetenv("TZ");
    ::tzset();
  }
  static std::int64_t utc(int month, int day, int hour) {
    return (std::chrono::sys_days(std::chrono::year(2026) / month / day).time_since_epoch() +
            std::chrono::hours(hour)) /
           std::chrono::nanoseconds(1);
  }
};

TEST_F(TimeRangeOption, NothingIsAll) {
  const auto range = time_range_option("", "", "", kNow);
  ASSERT_TRUE(range);
  EXPECT_TRUE(range->all());
  EXPECT_LT(range->lowest(true), 0);
  EXPECT_GT(range->end(false), utc(12, 31, 0));
}

TEST_F(TimeRangeOption, LastCountsFromNow) {
  const auto range = time_range_option("36h", "", "", kNow);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->lowest(true), utc(11, 16, 0));
  EXPECT_EQ(range->lowest(false), utc(11, 16, 3));
  EXPECT_FALSE(range->to);
}

TEST_F(TimeRangeOption, DaysAreLocalAndWhole) {
  const auto range = time_range_option("", "2026-11-01", "2026-11-30", kNow);
  ASSERT_TRUE(range);
  EXPECT_EQ(range->lowest(true), utc(11, 1, 0) - 3 * kHour);
  EXPECT_EQ(range->lowest(false), utc(11, 1, 0));
  EXPECT_EQ(range->end(true), utc(12, 1, 0) - 3 * kHour);
  EXPECT_EQ(range->end(false), utc(12, 1, 0));
}

TEST_F(TimeRangeOption, TimesWithAndWithoutAZone) {
  for (const char* text :
       {"2026-11-10T12:00", "2026-11-10 12:00:00", "2026-11-10T09:00:00Z", "2026-11-10T10:00:00+01:00"}) {
    const auto range = time_range_option("", text, "", kNow);
    ASSERT_TRUE(range) << text;
    EXPECT_EQ(range->lowest(true), utc(11, 10, 9)) << text;
    EXPECT_EQ(range->lowest(false), utc(11, 10, 12)) << text;
  }
}

TEST_F(TimeRangeOption, RefusesWhatIsNoTime) {
  for (const char* text : {"yesterday", "2026-11", "2026-11-31", "2026-13-01", "2026-11-10T25:00", "1814-01-01",
                           "12:00", "2026-11-10T12:00 please"})
    EXPECT_FALSE(time_range_option("", text, "", kNow)) << text;
  EXPECT_FALSE(time_range_option("2", "", "", kNow));
  EXPECT_FALSE(time_range_option("0s", "", "", kNow));
  EXPECT_FALSE(time_range_option("2d", "2026-11-01", "", kNow));
  EXPECT_FALSE(time_range_option("", "2026-11-02", "2026-11-01", kNow));
  EXPECT_TRUE(time_range_option("", "2026-11-02", "2026-11-02", kNow)) << "one day";
}

}  // namespace
}  // namespace lull
