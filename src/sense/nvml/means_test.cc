#include "sense/nvml/means.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

namespace lull {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::vector<nvml::Sample> samples(const std::vector<std::pair<unsigned long long, unsigned>>& pairs) {
  std::vector<nvml::Sample> all;
  for (const auto& [at, value] : pairs) {
    nvml::Sample& one = all.emplace_back();
    one.timestamp = at;
    one.value.ull = 0;
    one.value.ui = value;
  }
  return all;
}

std::optional<BufferMean> mean(const std::vector<std::pair<unsigned long long, unsigned>>& pairs,
                               unsigned long long last_seen) {
  std::vector<unsigned long long> scratch;
  return mean_of_buffer(samples(pairs), nvml::kValueUint, last_seen, scratch);
}

TEST(MeanOfBuffer, WeighsByTime) {
  const auto result = mean({{1100, 0}, {1200, 0}, {1300, 0}, {1500, 100}}, 1000);
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->mean, 40);  // 200 of 500 µs
  EXPECT_EQ(result->covered, std::chrono::microseconds(500));
  EXPECT_EQ(result->newest_us, 1500U);
}

TEST(MeanOfBuffer, TimeThatNobodyMeasuredIsNotIdle) {
  // The buffer ran over: of a minute it holds the last 300 µs, all busy.
  const auto overflow = mean({{60'000'100, 100}, {60'000'200, 100}, {60'000'300, 100}}, 1000);
  ASSERT_TRUE(overflow);
  EXPECT_DOUBLE_EQ(overflow->mean, 100);
  EXPECT_LE(overflow->covered, std::chrono::microseconds(400));
  // A gap in the middle counts for neither side.
  const auto gap = mean({{1100, 100}, {1200, 100}, {900'000, 0}, {900'100, 0}}, 1000);
  ASSERT_TRUE(gap);
  EXPECT_DOUBLE_EQ(gap->mean, 40);  // 200 busy, at most 200 + 100 idle
}

std::optional<Duration> tail(const std::vector<std::pair<unsigned long long, unsigned>>& pairs,
                             unsigned long long now_us) {
  std::vector<unsigned long long> scratch;
  return idle_tail(samples(pairs), nvml::kValueUint, now_us, scratch);
}

TEST(IdleTail, BackToTheLastWorkOrAsFarAsItGoes) {
  using std::chrono::microseconds;
  EXPECT_EQ(tail({{100, 90}, {200, 0}, {300, 4}, {400, 0}}, 450), microseconds(200));
  EXPECT_EQ(tail({{100, 0}, {200, 0}, {300, 4}}, 450), microseconds(200));
  EXPECT_EQ(tail({{100, 90}, {200, 90}, {300, 0}}, 450), microseconds(0));
  EXPECT_EQ(tail({{100, 0}, {200, 0}, {300, 5}}, 450), std::nullopt) << "works now";
  EXPECT_EQ(tail({}, 450), std::nullopt);
}

TEST(IdleTail, WhatNobodyRecordedIsNotIdle) {
  using std::chrono::microseconds;
  EXPECT_EQ(tail({{100, 0}, {200, 0}, {50'000, 0}, {50'100, 0}}, 50'200), microseconds(100)) << "a gap";
  EXPECT_EQ(tail({{100, 0}, {200, 0}, {300, 0}}, 10'000'000), std::nullopt) << "nothing was recorded for long";
  EXPECT_EQ(tail({{100'000'000, 0}, {100'000'100, 0}}, 450), std::nullopt) << "another clock";
  EXPECT_EQ(tail({{100, 0}, {200, 37'100}, {300, 0}}, 450), microseconds(0)) << "nonsense";
  EXPECT_EQ(tail({{300, 0}, {200, 0}, {310, 0}}, 450), microseconds(110)) << "no further back than in order";
}

TEST(MeanOfBuffer, SeenAlreadyTwiceTheSameTimeOrOutOfOrderDoesNotCount) {
  const auto result = mean({{900, 100}, {1000, 100}, {1100, 0}, {1100, 100}, {1050, 100}, {1200, 50}}, 1000);
  ASSERT_TRUE(result);
  EXPECT_DOUBLE_EQ(result->mean, 25);
  EXPECT_FALSE(mean({{900, 100}, {1000, 100}}, 1000));
  EXPECT_FALSE(mean({}, 0));
}

TEST(MeanOfBuffer, NonsenseIsLeftOut) {
  EXPECT_DOUBLE_EQ(mean({{1100, 37100}, {1200, 30}}, 1000)->mean, 30);
  EXPECT_FALSE(mean({{1100, 37100}}, 1000));
  std::vector<unsigned long long> scratch;
  EXPECT_FALSE(mean_of_buffer(samples({{1100, 1}}), 99, 1000, scratch)) << "a type of value that we do not know";
}

TEST(MeanOfBuffer, EveryTypeOfValue) {
  std::vector<unsigned long long> scratch;
  std::vector<nvml::Sample> one = samples({{1100, 0}});
  one[0].value.d = 12.5;
  EXPECT_DOUBLE_EQ(mean_of_buffer(one, nvml::kValueDouble, 1000, scratch)->mean, 12.5);
  one[0].value.ull = 13;
  EXPECT_DOUBLE_EQ(mean_of_buffer(one, nvml::kValueUlonglong, 1000, scratch)->mean, 13);
  EXPECT_DOUBLE_EQ(mean_of_buffer(one, nvml::kValueUlong, 1000, scratch)->mean, 13);
  one[0].value.sll = -1;
  EXPECT_FALSE(mean_of_buffer(one, nvml::kValueSlonglong, 1000, scratch));
}

// The slow, obvious twin: with samples at one distance, the mean is the plain mean.
TEST(MeanOfBuffer, IsThePlainMeanAtOneDistance) {
  EXPECT_TRUE(rc::check("mean of equally spaced samples", [] {
    const auto values = *rc::gen::nonEmpty(rc::gen::container<std::vector<unsigned>>(rc::gen::inRange(0U, 101U)));
    std::vector<std::pair<unsigned long long, unsigned>> pairs;
    double sum = 0;
    for (const unsigned value : values) {
      pairs.emplace_back(1000 + 167 * (pairs.size() + 1), value);
      sum += value;
    }
    const auto result = mean(pairs, 1000);
    RC_ASSERT(result.has_value());
    RC_ASSERT(std::abs(result->mean - sum / static_cast<double>(values.size())) < 1e-9);
  }));
  EXPECT_TRUE(rc::check("never outside of what was measured", [](std::vector<std::pair<unsigned, unsigned>> raw) {
    const std::vector<std::pair<unsigned long long, unsigned>> pairs(raw.begin(), raw.end());
    const auto result = mean(pairs, 5);
    if (!result) return;
    unsigned low = 100;
    unsigned high = 0;
    for (const auto& [at, value] : pairs)
      if (at > 5 && value <= 100) {
        low = std::min(low, value);
        high = std::max(high, value);
      }
    RC_ASSERT(result->mean >= low - 1e-9 && result->mean <= high + 1e-9);
  }));
}

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

TEST_F(Energy, TooShortATimeOrACounterThatStandsStillWaitsForMore) {
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
