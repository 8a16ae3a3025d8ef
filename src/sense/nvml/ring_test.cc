#include "sense/nvml/meters.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lull {
namespace {

using namespace std::chrono_literals;

using Pairs = std::vector<std::pair<unsigned long long, unsigned>>;

constexpr Instant kNow{100s};
constexpr RingClocks kClocks = {100'000'000, 40'000'000, 1'700'000'000'000'000};

std::vector<nvml::Sample> samples(const Pairs& pairs) {
  std::vector<nvml::Sample> all;
  for (const auto& [at, value] : pairs) {
    nvml::Sample& one = all.emplace_back();
    one.timestamp = at;
    one.value.ull = 0;
    one.value.ui = value;
  }
  return all;
}

std::vector<RingSpan> placed(Ring& ring, const Pairs& pairs, Instant now = kNow, RingClocks clocks = kClocks) {
  const auto spans = ring.place(samples(pairs), nvml::kValueUint, now, clocks);
  return spans ? std::vector(spans->begin(), spans->end()) : std::vector<RingSpan>{};
}

TEST(Ring, EachSampleIsOfTheTimeSinceTheOneBefore) {
  Ring ring;
  const auto spans = placed(ring, {{99'400'000, 10}, {99'600'000, 20}, {99'800'000, 30}});
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[2].to, Instant(99'800ms));
  EXPECT_EQ(spans[2].from, Instant(99'600ms));
  EXPECT_EQ(spans[0].from, Instant(99'200ms)) << "the first: the usual time";
  EXPECT_EQ(spans[2].percent, 30);
  EXPECT_EQ(ring.usual(), 200ms);
}

TEST(Ring, AfterAGapASampleIsOfTheUsualTimeOnly) {
  Ring ring;
  const auto spans = placed(ring, {{91'000'000, 1}, {91'200'000, 1}, {91'400'000, 1}, {99'000'000, 50}});
  ASSERT_EQ(spans.size(), 4U);
  EXPECT_EQ(spans[3].from, Instant(98'800ms));
}

TEST(Ring, ASingleSampleIsOfLittleTime) {
  Ring ring;
  const auto spans = placed(ring, {{99'900'000, 50}});
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_LE(spans[0].to - spans[0].from, 170ms);
}

TEST(Ring, AnyClockThatTheNewestStampIsNear) {
  for (const long long now : {kClocks.boot, kClocks.monotonic, kClocks.wall}) {
    Ring ring;
    const auto at = static_cast<unsigned long long>(now);
    const auto spans = placed(ring, {{at - 400'000, 10}, {at - 200'000, 10}});
    ASSERT_EQ(spans.size(), 2U) << now;
    EXPECT_EQ(spans[1].to, Instant(99'800ms));
  }
  Ring ring;
  EXPECT_TRUE(placed(ring, {{70'000'000, 10}, {70'200'000, 10}}).empty()) << "near none";
  EXPECT_FALSE(ring.place(samples({{70'000'000, 10}}), nvml::kValueUint, kNow, kClocks));
  EXPECT_TRUE(ring.place({}, nvml::kValueUint, kNow, kClocks)) << "empty fits";
}

TEST(Ring, AKnownClockStaysKnownWhileTheRingIsDryAndIsFoundAgainWhenSet) {
  Ring ring;
  const unsigned long long wall = 1'700'000'000'000'000;
  const Pairs pairs = {{wall - 300'000, 10}, {wall - 100'000, 10}};
  EXPECT_EQ(placed(ring, pairs).size(), 2U);
  RingClocks later = kClocks;
  later.boot += 8'000'000, later.monotonic += 8'000'000, later.wall += 8'000'000;
  EXPECT_EQ(placed(ring, pairs, kNow + 8s, later).size(), 2U) << "dry for 8 s";
  later.wall -= 3600'000'000;  // an hour back
  EXPECT_TRUE(placed(ring, pairs, kNow + 8s, later).empty()) << "of the future";
  const Pairs mixed = {
      {wall - 3592'400'000, 50}, {wall - 3592'200'000, 50}, {wall - 300'000, 10}, {wall - 100'000, 10}};
  const auto spans = placed(ring, mixed, kNow + 8s, later);
  ASSERT_EQ(spans.size(), 2U) << "what was recorded since";
  EXPECT_EQ(spans[1].percent, 50);
}

TEST(Ring, NonsenseIsTimeThatNobodyMeasured) {
  Ring ring;
  const auto spans = placed(ring, {{99'400'000, 37100}, {99'600'000, 0}, {99'800'000, 101}});
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_TRUE(std::isnan(spans[0].percent) && std::isnan(spans[2].percent));
  EXPECT_EQ(spans[1].to - spans[1].from, 200ms);
  EXPECT_EQ(placed(ring, {{~0ULL, 5}, {0, 5}, {99'800'000, 7}}).size(), 1U) << "stamps that are none";
  const auto unknown_type = ring.place(samples({{99'800'000, 1}}), 99, kNow, kClocks);
  ASSERT_TRUE(unknown_type && unknown_type->size() == 1);
  EXPECT_TRUE(std::isnan(unknown_type->front().percent));
}

TEST(Ring, OutOfOrderAndTwice) {
  Ring ring;
  const auto spans = placed(ring, {{99'800'000, 3}, {99'400'000, 1}, {99'600'000, 2}, {99'600'000, 90}});
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[1].percent, 2);
  EXPECT_EQ(spans[2].percent, 3);
}

TEST(Ring, EveryTypeOfValue) {
  nvml::Value value{};
  value.d = 12.5;
  EXPECT_EQ(number_of(value, nvml::kValueDouble), 12.5);
  value.ull = 13;
  EXPECT_EQ(number_of(value, nvml::kValueUlonglong), 13);
  EXPECT_EQ(number_of(value, nvml::kValueUlong), 13);
  value.sll = -1;
  EXPECT_EQ(number_of(value, nvml::kValueSlonglong), -1);
  EXPECT_TRUE(std::isnan(number_of(value, 99)));
}

std::optional<Duration> tail(const Pairs& pairs, Instant now = kNow) {
  Ring ring;
  RingClocks clocks = kClocks;
  clocks.boot += std::chrono::duration_cast<std::chrono::microseconds>(now - kNow).count();
  const auto spans = ring.place(samples(pairs), nvml::kValueUint, now, clocks);
  return spans ? idle_tail(*spans, now) : std::nullopt;
}

TEST(IdleTail, BackToTheLastWorkOrAsFarAsItGoes) {
  EXPECT_EQ(tail({{99'200'000, 90}, {99'400'000, 0}, {99'600'000, 4}, {99'800'000, 0}}), 600ms);
  EXPECT_EQ(tail({{99'400'000, 0}, {99'600'000, 0}, {99'800'000, 4}}), 600ms);
  EXPECT_EQ(tail({{99'400'000, 0}, {99'600'000, 0}, {99'800'000, 5}}), std::nullopt) << "works now";
  EXPECT_EQ(tail({}), std::nullopt);
}

TEST(IdleTail, WhatNobodyRecordedIsNotIdle) {
  EXPECT_EQ(tail({{91'000'000, 0}, {91'200'000, 0}, {99'600'000, 0}, {99'800'000, 0}}), 400ms) << "a gap";
  EXPECT_EQ(tail({{99'600'000, 0}, {99'800'000, 0}}, kNow + 9s), std::nullopt) << "nothing was recorded for long";
  EXPECT_EQ(tail({{99'400'000, 0}, {99'600'000, 37'100}, {99'800'000, 0}}), 200ms) << "nonsense";
}

}  // namespace
}  // namespace lull
