#include "replay/intervals.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace lull::replay {
namespace {

std::int64_t obvious_twice(std::vector<std::int64_t> values) {
  std::sort(values.begin(), values.end());
  return values[(values.size() - 1) / 2] + values[values.size() / 2];
}

TEST(Median, ExactAfterAFewReadings) {
  const bool held = rc::check([] {
    const auto scale = *rc::gen::element<std::int64_t>(3, 1000, 1'000'000'000, 3'600'000'000'000);
    auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(
        rc::gen::oneOf(rc::gen::inRange<std::int64_t>(0, scale), rc::gen::just(scale),
                       rc::gen::inRange<std::int64_t>(scale, scale + scale / 50 + 2))));
    if (*rc::gen::arbitrary<bool>())  // more values than are kept
      for (std::int64_t i = 0; i < 300; ++i) values.push_back(scale + i * (scale / 10'000 + 1));
    const std::int64_t truth = obvious_twice(values);
    RC_ASSERT(median_twice(values) == truth);
    MedianFinder finder;
    for (int reading = 0;; ++reading) {
      for (const std::int64_t value : values) finder.add(value);
      const auto bracket = finder.median();
      RC_ASSERT(bracket.has_value());
      RC_ASSERT(bracket->low_twice <= truth);
      RC_ASSERT(bracket->high_twice >= truth);
      if (bracket->exact()) break;
      RC_ASSERT(reading < 6);
      finder = finder.closer();
    }
  });
  EXPECT_TRUE(held);
}

TEST(Median, RegularSamplingIsExactAtOnce) {
  MedianFinder finder;
  for (int i = 0; i < 100'000; ++i) finder.add(i % 1000 == 0 ? 60'000'000'000 : 1'000'000'000);
  EXPECT_TRUE(finder.median()->exact());
  EXPECT_EQ(finder.median()->low_twice, 2'000'000'000);
  EXPECT_FALSE(MedianFinder().median());
}

// As `lull record` writes them: a day's file is not read twice for it.
TEST(Median, OfTimesToTheMillisecondIsExactAtOnce) {
  MedianFinder finder;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 100'000; ++i) values.push_back(5'000'000'000 + (i * 7919 % 100) * 1'000'000);
  for (const std::int64_t value : values) finder.add(value);
  ASSERT_TRUE(finder.median()->exact());
  EXPECT_EQ(finder.median()->low_twice, obvious_twice(values));
  for (int i = 0; i < 1000; ++i) finder.add(5'000'000'000 + i);  // many more values: as before
  EXPECT_FALSE(finder.median()->exact());
}

TEST(Intervals, LongerThanThreeMediansIsAGap) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  EXPECT_EQ(gap_of(2 * kSecond), 3 * kSecond);
  EXPECT_EQ(gap_of(kSecond / 2), kSecond);  // as live: no less, however often samples come
  Intervals intervals(30);
  std::vector<Instant> at;
  for (const std::int64_t t : {0, 10, 20, 50, 81, 91}) at.emplace_back(Duration(t));
  intervals.feed(std::span(at).first(2));
  intervals.feed(std::span(at).subspan(2));
  EXPECT_EQ(intervals.seen(), Duration(10 + 10 + 30 + 10));
  EXPECT_TRUE(intervals.same_gaps(30, 30));
  EXPECT_FALSE(intervals.same_gaps(29, 30));
  EXPECT_FALSE(intervals.same_gaps(30, 31));
}

}  // namespace
}  // namespace lull::replay
