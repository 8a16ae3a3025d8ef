#include "trace/time.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <charconv>

#include "trace/number.h"

namespace lull::trace {
namespace {

constexpr std::int64_t kNs = 1'000'000'000;
constexpr std::int64_t kMarch = 1'710'500'669;  // 2024-03-15T11:04:29Z

TEST(TraceTime, EveryKindThatTracesCarry) {
  const std::int64_t ns = kMarch * kNs + 52'000'000;
  EXPECT_EQ(parse_time("2024-03-15T11:04:29.052Z", TimeKind::calendar), ns);
  EXPECT_EQ(parse_time("2024-03-15 11:04:29.052", TimeKind::calendar), ns);
  EXPECT_EQ(parse_time("2024/03/15 11:04:29.052", TimeKind::calendar), ns);
  EXPECT_EQ(parse_time("2024-03-15T13:04:29.052+02:00", TimeKind::calendar), ns);
  EXPECT_EQ(parse_time("2024-03-15t05:34:29.052-0530", TimeKind::calendar), ns);
  EXPECT_EQ(parse_time("1710500669.052", TimeKind::seconds), ns);
  EXPECT_EQ(parse_time("1710500669052", TimeKind::milliseconds), ns);
  EXPECT_EQ(parse_time("1710500669052000", TimeKind::microseconds), ns);
  EXPECT_EQ(parse_time("1710500669052000000", TimeKind::nanoseconds), ns);
  EXPECT_EQ(parse_time("1.71e9", TimeKind::seconds), 1'710'000'000 * kNs);
}

TEST(TraceTime, WhatIsNoTimeIsRefused) {
  for (const char* bad : {"", "2024-03-15", "2024-13-15T11:04:29Z", "2024-02-30T11:04:29Z", "2024-03-15T25:04:29Z",
                          "2024-03-15T11:04:29.Z", "2024-03-15T11:04:29+2", "2024-03/15 11:04:29", "yesterday",
                          "2024-03-15T11:04:29Zjunk", "9999-03-15T11:04:29Z"})
    EXPECT_FALSE(parse_time(bad, TimeKind::calendar)) << bad;
  for (const char* bad : {"", "-", "12x", "1.2.3", "1e30", "99999999999999999999", "nan", "inf"})
    EXPECT_FALSE(parse_time(bad, TimeKind::seconds)) << bad;
}

TEST(TraceTime, KindByMagnitude) {
  EXPECT_EQ(kind_by_magnitude(0), TimeKind::seconds);
  EXPECT_EQ(kind_by_magnitude(1.7e9), TimeKind::seconds);
  EXPECT_EQ(kind_by_magnitude(1.7e12), TimeKind::milliseconds);
  EXPECT_EQ(kind_by_magnitude(1.7e15), TimeKind::microseconds);
  EXPECT_EQ(kind_by_magnitude(1.7e18), TimeKind::nanoseconds);
}

TEST(TraceTime, FormatParsesBack) {
  EXPECT_EQ(format_time(kMarch * kNs + 52'000'000), "2024-03-15T11:04:29.052Z");
  EXPECT_EQ(format_time(kMarch * kNs + 52'000'000, false), "2024-03-15T11:04:29.052");
  const bool held = rc::check("any time survives", [] {
    const auto ns = *rc::gen::inRange<std::int64_t>(0, 9'000'000'000LL * kNs);
    RC_ASSERT(parse_time(format_time(ns), TimeKind::calendar) == ns);
  });
  EXPECT_TRUE(held);
}

TEST(TraceTime, TheFastReaderAgreesWithTheSlowOne) {
  const bool held = rc::check([] {
    TimeReader reader(TimeKind::calendar, true);
    std::int64_t ns = *rc::gen::inRange<std::int64_t>(0, 4'000'000'000LL) * kNs;
    for (const int step : *rc::gen::container<std::vector<int>>(20, rc::gen::inRange(-100'000, 100'000))) {
      ns = std::max<std::int64_t>(0, ns + step * 1'000'000LL);
      const std::string cell = format_time(ns) + ",";
      const std::string padded = cell + std::string(64, '\n');
      std::int64_t got = 0;
      const char* const end = reader.read(padded.data(), got);
      RC_ASSERT(end == padded.data() + cell.size() - 1);
      RC_ASSERT(got == ns);
    }
  });
  EXPECT_TRUE(held);
}

TEST(TraceTime, ATimeWithoutAZoneAmongOthersIsLeftToTheSlowWay) {
  const std::string zoned = "2024-03-15T11:04:29Z," + std::string(64, '\n');
  const std::string plain = "2024-03-15 11:04:29," + std::string(64, '\n');
  std::int64_t ns = 0;
  EXPECT_NE(TimeReader(TimeKind::calendar, true).read(zoned.data(), ns), nullptr);
  EXPECT_EQ(TimeReader(TimeKind::calendar, true).read(plain.data(), ns), nullptr);
  EXPECT_EQ(TimeReader(TimeKind::calendar, false).read(zoned.data(), ns), nullptr);
  EXPECT_TRUE(zone_mismatch("2024-03-15 11:04:29", true));
  EXPECT_TRUE(zone_mismatch("2024-03-15 11:04:29 UTC", false));
  EXPECT_FALSE(zone_mismatch("2024-03-15 11:04:29 UTC", true));
}

TEST(TraceTime, ItsZoneIsKept) {
  EXPECT_EQ(format_time(kMarch * kNs, true, 330), "2024-03-15T16:34:29.000+05:30");
  EXPECT_EQ(format_time(kMarch * kNs, true, -480), "2024-03-15T03:04:29.000-08:00");
  EXPECT_EQ(format_time(kMarch * kNs, false, 330), "2024-03-15T11:04:29.000");
}

TEST(Numbers, ReadAsFromCharsReadsThem) {
  const bool held = rc::check([] {
    const auto digits = *rc::gen::inRange<std::int64_t>(-999'999'999'999'999, 999'999'999'999'999);
    const auto places = *rc::gen::inRange<std::size_t>(0, 15);
    std::string text = std::to_string(digits);
    const std::size_t sign = digits < 0 ? 1 : 0;
    if (text.size() - sign > places && places > 0) text.insert(text.size() - places, ".");
    double want = 0;
    std::from_chars(text.data(), text.data() + text.size(), want);
    const std::size_t size = text.size();
    text += ",12345678";  // what follows is not part of it
    double got = 0;
    bool exact = true;
    RC_ASSERT(read_number(text.data(), got, exact) == text.data() + size);
    RC_ASSERT(exact);
    RC_ASSERT(got == want);
  });
  EXPECT_TRUE(held);
  double number = 0;
  bool exact = true;
  for (const char* none : {",", "-,", ".,", "x,", "1e5,", "12345678901234567890,"})
    EXPECT_EQ(read_number((none + std::string(8, '\n')).c_str(), number, exact), nullptr) << none;
  // Every other byte ends a number.
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    if (is_digit(c) || c == '.' || c == 'e' || c == 'E') continue;
    for (int before = 1; before < 12; ++before) {
      const std::string text = std::string(static_cast<std::size_t>(before), '7') + c + std::string(9, '7');
      ASSERT_EQ(read_number(text.data(), number, exact), text.data() + before) << byte;
      ASSERT_EQ(number, std::stod(text.substr(0, static_cast<std::size_t>(before)))) << byte;
    }
  }
}

}  // namespace
}  // namespace lull::trace
