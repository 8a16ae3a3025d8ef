#include "replay/survival.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lull::replay {
namespace {

JobKey key(std::size_t i) { return {i % 7, Instant(std::chrono::seconds(i))}; }

// So many jobs of 100 s of work; every n-th loses half of it.
std::optional<Interval> interval(std::size_t jobs, std::size_t every, bool backwards = false) {
  LossIntervals intervals;
  std::vector<std::vector<LossIntervals::Loss>> losses(2);
  for (std::size_t i = 0; i < jobs; ++i) {
    const std::size_t job = backwards ? jobs - 1 - i : i;
    intervals.add_job(key(job), 100);
    if (job % every == 0) losses[1].push_back({key(job), 50});
  }
  const auto all = intervals.of(losses, 100.0 * static_cast<double>(jobs));
  if (all[0]) {
    EXPECT_EQ(all[0]->high, 0);
  }
  return all[1];
}

TEST(LossInterval, IsAboutThatOfABinomialShare) {
  const auto got = interval(400, 10);  // 5 % of the work; the share of losing jobs is 10 % +- 2.94 %
  ASSERT_TRUE(got);
  EXPECT_NEAR(got->low, 0.5 * (0.10 - 0.0294), 0.003);
  EXPECT_NEAR(got->high, 0.5 * (0.10 + 0.0294), 0.003);
}

// As R's binom.test has them.
TEST(ShareUpTo, IsTheUpperEndOfClopperAndPearson) {
  EXPECT_NEAR(share_up_to(0, 12), 0.26465, 1e-5);
  EXPECT_NEAR(share_up_to(2, 60), 0.11528, 1e-5);
  EXPECT_NEAR(share_up_to(9, 10), 0.99747, 1e-5);
  EXPECT_NEAR(share_up_to(0, 1'000'000), 3.6889e-6, 1e-9);
  EXPECT_EQ(share_up_to(3, 3), 1);
  EXPECT_EQ(share_up_to(0, 0), 1);
  for (std::uint64_t seen = 0; seen < 9; ++seen) EXPECT_LT(share_up_to(seen, 50), share_up_to(seen + 1, 50));
}

TEST(LossInterval, DoesNotDependOnTheOrderOfReading) {
  for (const std::size_t jobs : {50U, 25'000U}) {
    const auto one = interval(jobs, 3);
    const auto other = interval(jobs, 3, true);
    ASSERT_TRUE(one && other);
    EXPECT_EQ(one->low, other->low);
    EXPECT_EQ(one->high, other->high);
  }
}

TEST(LossInterval, GetsNarrowerWithMoreJobs) {
  const auto width = [](const std::optional<Interval>& one) { return one ? one->high - one->low : -1; };
  EXPECT_GT(width(interval(30, 3)), 2 * width(interval(300, 3)));
  EXPECT_GT(width(interval(300, 3)), 2 * width(interval(30'000, 3)));
  EXPECT_GT(width(interval(30'000, 3)), 0);
}

TEST(LossInterval, WhereEachJobLosesTheSameShareItIsThatShare) {
  for (const std::size_t jobs : {50U, 25'000U}) {  // and where they are put together into groups
    const auto got = interval(jobs, 1);
    ASSERT_TRUE(got);
    EXPECT_NEAR(got->low, 0.5, 1e-9);
    EXPECT_NEAR(got->high, 0.5, 1e-9);
  }
}

TEST(LossInterval, OneJobHasNone) {
  EXPECT_FALSE(interval(1, 1));
  EXPECT_FALSE(LossIntervals().of({{}}, 0)[0]);
}

// Of random samples from a known truth about 95 % of the intervals hold it.
TEST(SurvivalInterval, HoldsTheTruthAboutAsOftenAsItSays) {
  std::mt19937_64 dice(7);
  int held = 0;
  constexpr int kRounds = 400;
  for (int round = 0; round < kRounds; ++round) {
    Survival survival;
    for (int job = 0; job < 80; ++job) {
      // Returns at an even rate within 2 h; a third is cut off before some time within 3 h.
      const auto back = static_cast<std::int64_t>(dice() % 7200);
      const auto cut = static_cast<std::int64_t>(dice() % 10'800);
      survival.add(std::chrono::seconds(std::min(back, cut)), back <= cut ? Leaving::came_back : Leaving::cut_off);
    }
    const auto chance = survival.chance_within(std::chrono::hours(1));
    ASSERT_TRUE(chance);
    held += chance->low <= 0.5 && 0.5 <= chance->high ? 1 : 0;
  }
  EXPECT_GT(held, kRounds * 91 / 100);
  EXPECT_LT(held, kRounds * 99 / 100);
}

// Where nobody came back it is as sure as there are jobs of which that is known.
TEST(SurvivalInterval, WhereNobodyCameBackItGoesByTheJobsThatWereFollowed) {
  const auto high_of = [](Duration followed, int others, Leaving how) {
    Survival survival;
    for (int i = 0; i < 16; ++i) survival.add(followed, Leaving::cut_off);
    for (int i = 0; i < others; ++i) survival.add(std::chrono::minutes(1), how);
    const auto chance = survival.chance_within(std::chrono::hours(1));
    EXPECT_TRUE(chance && chance->ratio == 0 && chance->low == 0 && chance->at_risk == 16);
    return chance ? chance->high : -1;
  };
  for (const int hours : {1, 2, 30}) {
    const Duration followed = std::chrono::hours(hours);
    EXPECT_DOUBLE_EQ(high_of(followed, 0, Leaving::cut_off), share_up_to(0, 16));
    EXPECT_DOUBLE_EQ(high_of(followed, 100, Leaving::cut_off), share_up_to(0, 16));  // might have come back later
    EXPECT_DOUBLE_EQ(high_of(followed, 100, Leaving::released), share_up_to(0, 116));
  }
}

TEST(SurvivalInterval, WhereAllCameBackItGoesByTheirNumber) {
  Survival survival;
  for (int i = 0; i < 12; ++i) survival.add(std::chrono::minutes(1), Leaving::came_back);
  const auto chance = survival.estimate(std::chrono::hours(1));
  ASSERT_TRUE(chance);
  EXPECT_DOUBLE_EQ(chance->low, 1 - share_up_to(0, 12));
  EXPECT_DOUBLE_EQ(chance->high, 1);
}

TEST(SurvivalInterval, FewAtRiskSayNothing) {
  Survival survival;
  for (int i = 0; i < 9; ++i) survival.add(std::chrono::hours(5), Leaving::cut_off);
  EXPECT_FALSE(survival.chance_within(std::chrono::hours(4)));
  survival.add(std::chrono::hours(5), Leaving::cut_off);
  const auto chance = survival.chance_within(std::chrono::hours(4));
  ASSERT_TRUE(chance);
  EXPECT_EQ(chance->ratio, 0);
  EXPECT_GT(chance->high, 0.2);  // ten that did not return prove little
  EXPECT_FALSE(survival.chance_within(std::chrono::hours(6)));
}

}  // namespace
}  // namespace lull::replay
