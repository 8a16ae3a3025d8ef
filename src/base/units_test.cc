#include "base/units.h"

#include <gtest/gtest.h>

#include <chrono>

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(Durations, AsPeopleWriteThem) {
  EXPECT_EQ(parse_duration("500ms"), Duration(500ms));
  EXPECT_EQ(parse_duration("30s"), Duration(30s));
  EXPECT_EQ(parse_duration("5m"), Duration(5min));
  EXPECT_EQ(parse_duration("2h"), Duration(2h));
  EXPECT_EQ(parse_duration("1d"), Duration(24h));
  EXPECT_EQ(parse_duration("1h30m"), Duration(90min));
  EXPECT_EQ(parse_duration("1.5h"), Duration(90min));
  EXPECT_EQ(parse_duration(" 90s "), Duration(90s));
  EXPECT_EQ(parse_duration("0"), Duration::zero());
  EXPECT_EQ(parse_duration("20 minutes"), Duration(20min));
  EXPECT_EQ(parse_duration("1 hour 30 mins"), Duration(90min));
  EXPECT_EQ(parse_duration("45 seconds"), Duration(45s));
  EXPECT_EQ(parse_duration("2 weeks"), Duration(14 * 24h));
}

TEST(Durations, WrongOnesAreRefused) {
  for (const char* bad : {"", "m", "5x", "-5m", "1h30", "5m5", "1..5s", "nan", "1e9s", "999999999999d", "5 5s"})
    EXPECT_FALSE(parse_duration(bad)) << bad;
  EXPECT_NE(parse_duration("5x").error().message().find("5x"), std::string::npos);
}

TEST(Durations, NeedAUnit) {
  for (const char* bare : {"4", " 90 ", "1.5"}) ASSERT_FALSE(parse_duration(bare)) << bare;
  EXPECT_EQ(parse_duration("4").error().message(), "'4' needs a unit: 4s, 4m or 4h would be right");
}

TEST(Durations, FormatParsesBack) {
  for (const Duration d : {Duration(0), Duration(1), Duration(500ms), Duration(1500ms), Duration(1250ms), Duration(59s),
                           Duration(90s), Duration(2h), Duration(25h), Duration(24h + 61s)})
    EXPECT_EQ(parse_duration(format_duration(d)), d) << format_duration(d);
  EXPECT_EQ(format_duration(90min), "1h30m");
  EXPECT_EQ(format_duration(1500ms), "1.5s");
}

TEST(Sizes, AsPeopleWriteThem) {
  EXPECT_EQ(parse_size("8GiB"), 8ULL << 30);
  EXPECT_EQ(parse_size("20GB"), 20'000'000'000ULL);
  EXPECT_EQ(parse_size("20G"), 20ULL << 30);
  EXPECT_EQ(parse_size("700m"), 700ULL << 20);
  EXPECT_EQ(parse_size("4 kB"), 4000ULL);
  EXPECT_EQ(parse_size("512B"), 512ULL);
  EXPECT_EQ(parse_size("0"), 0ULL);
  EXPECT_EQ(parse_size("0.5 KiB"), 512ULL);
  for (const char* bad : {"", "GiB", "8Gib", "8X", "8x", "8 potatoes", "-1GiB", "1e400", "99999999TiB"})
    EXPECT_FALSE(parse_size(bad)) << bad;
  ASSERT_FALSE(parse_size("20"));
  EXPECT_EQ(parse_size("20").error().message(), "'20' needs a unit: 20GiB or 20MiB would be right");
  EXPECT_EQ(format_size(8.0 * (1ULL << 30)), "8.0 GiB");
}

}  // namespace
}  // namespace lull
