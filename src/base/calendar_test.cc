#include "base/calendar.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>

namespace lull {
namespace {

using namespace std::chrono_literals;

TEST(Rfc3339, KnownTimes) {
  const WallTime time(1710500669052ms);
  EXPECT_EQ(format_rfc3339(time), "2024-03-15T11:04:29.052Z");
  EXPECT_EQ(format_rfc3339(time, 0), "2024-03-15T11:04:29Z");
  EXPECT_EQ(parse_rfc3339("2024-03-15T11:04:29.052Z"), time);
  EXPECT_EQ(parse_rfc3339("2024-03-15 13:04:29.052+02:00"), time);
  EXPECT_EQ(parse_rfc3339("2024-03-15T06:34:29.052-0430"), time);
}

TEST(Rfc3339, WrongOnesAreNothing) {
  for (const char* bad : {"", "2024", "2024-03-15", "2024-03-15T11:04", "2024-03-15T11:04:29", "2024-13-15T11:04:29Z",
                          "2024-02-30T11:04:29Z", "2024-03-15T24:04:29Z", "2024-03-15T11:04:29.Z",
                          "2024-03-15T11:04:29Zx", "1969-12-31T23:59:59Z", "9999-01-01T00:00:00Z"})
    EXPECT_EQ(parse_rfc3339(bad), std::nullopt) << bad;
}

TEST(Rfc3339, FormatParsesBack) {
  EXPECT_TRUE(rc::check([] {
    const WallTime time(Duration(*rc::gen::inRange<std::int64_t>(0, 7'000'000'000'000'000'000)));
    RC_ASSERT(parse_rfc3339(format_rfc3339(time, 9)) == time);
  }));
}

TEST(Rfc3339, AnyTextIsSafe) {
  EXPECT_TRUE(rc::check([](const std::string& text) { (void)parse_rfc3339(text); }));
}

}  // namespace
}  // namespace lull
