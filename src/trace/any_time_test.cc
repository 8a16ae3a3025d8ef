#include "trace/time.h"

#include <gtest/gtest.h>

namespace lull::trace {
namespace {

constexpr std::int64_t kNs = 1'000'000'000;
constexpr std::int64_t kMarch = 1'710'500'669;  // 2024-03-15T11:04:29Z

TEST(AnyTime, AsToolsAndPeopleWriteIt) {
  for (const char* text :
       {"2024-03-15T11:04:29Z", "2024/03/15 11:04:29", "2024-03-15 11:04:29 UTC", "Fri Mar 15 11:04:29 2024",
        "Fri Mar 15 11:04:29 UTC 2024", "Fri 15 Mar 2024 11:04:29 AM UTC", "20240315 11:04:29", "15.03.2024 11:04:29",
        "03/15/2024 11:04:29", "15/03/2024 11:04:29", "2024-03-15T12:04:29+01:00", "2024-03-15 06:04:29 -0500",
        "Fri Mar 15 12:04:29 CET 2024", "2024-03-15T11:04:29,000"}) {
    const auto time = read_any_time(text);
    ASSERT_TRUE(time) << text;
    EXPECT_EQ(time->ns, kMarch * kNs) << text;
    EXPECT_TRUE(time->dated && time->has_year) << text;
  }
  EXPECT_EQ(read_any_time("15.03.2024 11:04:29.052")->ns, kMarch * kNs + 52'000'000);
  EXPECT_EQ(read_any_time("3/15/2024 1:04:29 PM")->ns, (kMarch + 2 * 3600) * kNs);
  EXPECT_EQ(read_any_time("3/15/2024 12:00:00 AM")->ns, 1'710'460'800 * kNs);
}

TEST(AnyTime, ItsZoneIsKeptAndOneOfSeveralMeaningsIsNone) {
  EXPECT_EQ(read_any_time("2024-03-15T12:04:29+01:00")->zone_minutes, 60);
  EXPECT_EQ(read_any_time("2024-03-15T11:04:29Z")->zone_minutes, 0);
  EXPECT_FALSE(read_any_time("2024-03-15 11:04:29")->zone_minutes);
  EXPECT_FALSE(read_any_time("Fri Mar 15 11:04:29 CST 2024")->zone_minutes);
}

TEST(AnyTime, WithoutADateOrAYear) {
  const auto clock = read_any_time("11:04:29");
  ASSERT_TRUE(clock);
  EXPECT_FALSE(clock->dated);
  EXPECT_EQ(clock->ns, (11 * 3600 + 4 * 60 + 29) * kNs);
  const auto leap_day = read_any_time("Feb 29 00:00:01");
  ASSERT_TRUE(leap_day);
  EXPECT_FALSE(leap_day->has_year);
  EXPECT_EQ(leap_day->ns, (59 * 24 * 3600 + 1) * kNs);
}

TEST(AnyTime, ADayThatCouldBeAMonthIsNoTimeUntilSomebodySays) {
  EXPECT_FALSE(read_any_time("03/04/2024 11:04:29"));
  EXPECT_EQ(read_any_time("03/04/2024 11:04:29", DayOrder::day_first)->ns, 1'712'142'269 * kNs);
  EXPECT_EQ(read_any_time("03/04/2024 11:04:29", DayOrder::month_first)->ns, 1'709'550'269 * kNs);
  EXPECT_EQ(day_order_of("15/03/2024 11:04"), DayOrder::day_first);
  EXPECT_EQ(day_order_of("03/15/2024 11:04"), DayOrder::month_first);
  EXPECT_EQ(day_order_of("03/04/2024 11:04"), DayOrder::unknown);
}

TEST(AnyTime, WhatIsNone) {
  for (const char* text : {"", "11", "2024-03-15", "2024-13-15 11:04:29", "2024-02-30 11:04:29", "25:04:29", "11:60:29",
                           "2024-03-15 11:04:29 lots", "Foo Mar 15 11:04:29 2024 x", "31.02.2024 11:04:29", "1:2"})
    EXPECT_FALSE(read_any_time(text)) << text;
}

TEST(AnyTime, TheTimeAtTheStartOfALineLeavesTheRest) {
  std::string_view line = "Nov 16 21:14:36 GPU 0  45";
  ASSERT_TRUE(take_any_time(line));
  EXPECT_EQ(line, " GPU 0  45");
  line = "[2024-03-15 11:04:29] # gpu";
  EXPECT_EQ(take_any_time(line)->ns, kMarch * kNs);
  EXPECT_EQ(line, " # gpu");
  line = "    1     43     48";
  EXPECT_FALSE(take_any_time(line));
  EXPECT_EQ(line, "    1     43     48");
  line = " 11:04:29      1     43";  // not the first of a month
  EXPECT_FALSE(take_any_time(line)->dated);
  EXPECT_EQ(line, "      1     43");
}

}  // namespace
}  // namespace lull::trace
