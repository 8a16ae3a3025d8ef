#include "gpu/power_learner.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <random>
#include <vector>

namespace lull {
namespace {

using namespace std::chrono_literals;

// Feeds a learner samples that are a second apart.
struct Card {
  PowerLearner learner;
  Instant at{1h};
  double limit = 700;
  Duration every = 1s;

  void run(Duration time, double util, double watts) {
    for (Duration passed{}; passed < time; passed += every) learner.see(at += every, util, watts, limit);
  }
};

Card learned_card() {
  Card card;
  card.run(1min, 0, 70);
  card.run(20min, 100, 570);  // 5 W for each %
  return card;
}

TEST(PowerLearnerTest, NothingIsLearnedWithoutIdle) {
  Card card;
  card.run(10min, 100, 570);
  EXPECT_TRUE(std::isnan(card.learner.idle_watts()));
  EXPECT_EQ(card.learner.seconds(), 0);
  EXPECT_TRUE(std::isnan(card.learner.effort(100, 570)));
  card.run(10s, 0, 70);  // what was seen before counts now
  EXPECT_GE(card.learner.seconds(), 595);
  EXPECT_NEAR(card.learner.effort(100, 570), 100, 1e-6);
}

TEST(PowerLearnerTest, TakesAMinuteOfWork) {
  Card card;
  card.run(10s, 0, 70);
  card.run(53s, 100, 570);
  EXPECT_LT(card.learner.seconds(), 60);
  EXPECT_TRUE(std::isnan(card.learner.effort(100, 570)));
  card.run(10s, 100, 570);
  EXPECT_GE(card.learner.seconds(), 60);
  EXPECT_NEAR(card.learner.effort(100, 570), 100, 1e-6);
  EXPECT_NEAR(card.learner.effort(50, 320), 100, 1e-6);
  EXPECT_NEAR(card.learner.effort(100, 152), 16.4, 1e-6);
}

TEST(PowerLearnerTest, AWindowIsFiveSecondsLong) {
  Card card;
  card.run(5s, 0, 30);  // the first stands for no time
  EXPECT_TRUE(std::isnan(card.learner.idle_watts()));
  card.run(1s, 0, 80);  // the mean is what counts, not the lowest sample
  EXPECT_NEAR(card.learner.idle_watts(), 40, 1e-6);
  Card slow;
  slow.every = 30s;
  slow.run(1min, 0, 70);
  slow.run(1min, 50, 300);  // two windows of 30 s
  EXPECT_EQ(slow.learner.seconds(), 60);
}

TEST(PowerLearnerTest, OneWindowIsNeverEnough) {
  Card card;
  card.every = 5min;
  card.run(10min, 0, 70);
  card.run(5min, 100, 570);
  EXPECT_LT(card.learner.seconds(), 60);
  card.run(5min, 100, 570);
  EXPECT_EQ(card.learner.seconds(), 60);
}

TEST(PowerLearnerTest, DoesNotLearnFromUnknownValuesAndGaps) {
  for (const bool util_is_missing : {true, false}) {
    Card card;
    for (int i = 0; i < 600; ++i) {
      card.run(2s, 0, 70);
      card.run(2s, 100, 570);
      card.run(1s, util_is_missing ? kUnknown : 50, util_is_missing ? 500 : kUnknown);
    }
    EXPECT_TRUE(std::isnan(card.learner.idle_watts()));
    EXPECT_EQ(card.learner.learned().seconds, 0);
  }
  Card card;
  for (int i = 0; i < 20; ++i) card.learner.see(card.at += 11min, 100, 570, 700);
  EXPECT_EQ(card.learner.learned().seconds, 0);
  card.learner.see(Instant{1min}, 100, 570, 700);  // time went backwards
  EXPECT_EQ(card.learner.learned().seconds, 0);
}

TEST(PowerLearnerTest, ImplausibleValuesAreUnknown) {
  Card card;
  card.run(10min, 0, -5);
  card.run(10min, 0, 1e9);
  card.run(10min, 4e9, 500);
  EXPECT_TRUE(std::isnan(card.learner.idle_watts()));
  EXPECT_TRUE(card.learner.learned().windows.empty());
}

TEST(PowerLearnerTest, EffortIsUnknownForACardThatHardlyWorks) {
  const Card card = learned_card();
  EXPECT_TRUE(std::isnan(card.learner.effort(4.9, 90)));
  EXPECT_TRUE(std::isnan(card.learner.effort(kUnknown, 90)));
  EXPECT_TRUE(std::isnan(card.learner.effort(50, kUnknown)));
  EXPECT_EQ(card.learner.effort(100, 40), 0);  // below its idle
}

TEST(PowerLearnerTest, AHangFromTheStartIsNotLearned) {
  Card card;
  card.run(1min, 0, 70);
  card.run(4h, 100, 152);
  EXPECT_LT(card.learner.seconds(), 60);  // but for the window in which it began: the fixed rule is in force
  card.run(20min, 100, 570);
  EXPECT_LT(card.learner.effort(100, 152), PowerLearner::kHungEffort);
}

TEST(PowerLearnerTest, ALongHangDoesNotBecomeUsual) {
  // Also one that the fixed rule does not see: 58 % of the limit of a T4, or no limit at all.
  for (const double limit : {70.0, kUnknown}) {
    Card card;
    card.limit = limit;
    card.run(1min, 0, 27);
    card.run(20min, 100, 68);
    card.run(100h, 100, 40.6);
    EXPECT_LT(card.learner.effort(100, 40.6), PowerLearner::kHungEffort);
    EXPECT_NEAR(card.learner.effort(100, 68), 100, 1);
  }
}

TEST(PowerLearnerTest, AFewOddWindowsAreOutvoted) {
  Card card;
  card.run(1min, 0, 70);
  card.run(2min, 6, 150);  // starting up: 13 W for each %
  EXPECT_TRUE(std::isnan(card.learner.effort(100, 500)));
  EXPECT_GT(card.learner.effort(6, 150), 90);
  card.run(4min, 100, 500);
  EXPECT_GT(card.learner.effort(100, 500), 90);
}

// What a card draws for light work says nothing of full work: a day of it must not make a hang of the first training.
TEST(PowerLearnerTest, LightWorkSaysNothingOfFullWork) {
  Card card;
  card.run(1min, 0, 70);
  card.run(24h, 8, 150);  // 10 W for each %
  for (int i = 0; i < 600; ++i) {
    EXPECT_FALSE(card.learner.effort(100, 400) < PowerLearner::kHungEffort) << i;  // 4.1 W for each %
    EXPECT_EQ(std::isnan(card.learner.effort(100, 400)), card.learner.seconds(100) < 60) << i;
    card.run(1s, 100, 400);
  }
  EXPECT_GT(card.learner.effort(8, 150), 90);
  card.run(24h, 100, 400);
  EXPECT_NEAR(card.learner.effort(100, 400), 100, 1);
  EXPECT_NEAR(card.learner.effort(100, 130), 18, 1);
}

TEST(PowerLearnerTest, ForgetsWhenThePowerLimitChanges) {
  Card card = learned_card();
  card.limit = 690;  // much the same
  card.run(5min, 100, 570);
  EXPECT_GT(card.learner.seconds(), 1200);
  card.limit = 300;
  card.run(1s, 100, 290);
  EXPECT_EQ(card.learner.seconds(), 0);  // at once, as long as that lasts
  card.limit = 700;
  card.run(1s, 100, 570);
  EXPECT_GT(card.learner.seconds(), 1200);  // one wrong reading costs nothing
  card.limit = 300;
  card.run(3min, 100, 290);
  EXPECT_GT(card.learner.seconds(), 60);
  EXPECT_LT(card.learner.seconds(), 180);
  EXPECT_NEAR(card.learner.effort(100, 290), 100, 1e-6);
  EXPECT_EQ(card.learner.idle_watts(), 70);  // idle power does not depend on the limit
}

TEST(PowerLearnerTest, MemoryIsBoundedAndTheMedianIsOfAllOfIt) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> noise(-20, 20);
  Card card;
  card.every = 5s;
  card.run(1min, 0, 70);
  for (int i = 0; i < 60'000; ++i) card.run(5s, 100, 570 + noise(random));
  EXPECT_LE(card.learner.learned().windows.size(), PowerLearner::kMostWindows);
  EXPECT_GT(card.learner.learned().windows.size(), PowerLearner::kMostWindows / 4);
  EXPECT_NEAR(card.learner.effort(100, 570), 100, 1);
  for (int i = 0; i < 90'000; ++i) card.run(5s, 100, 470);  // more than half by now
  EXPECT_NEAR(card.learner.effort(100, 470), 100, 1);
}

TEST(PowerLearnerTest, GoesOnFromWhatWasKept) {
  const Card card = learned_card();
  const PowerLearner kept(card.learner.learned());
  EXPECT_EQ(kept.seconds(), card.learner.seconds());
  EXPECT_EQ(kept.effort(100, 152), card.learner.effort(100, 152));
}

TEST(PowerLearnerTest, BlocksSayTheSameAsReadingsWhateverTheirSize) {
  std::mt19937 random(7);
  const std::size_t samples = 3000;
  std::vector<Instant> at;
  std::vector<float> util;
  std::vector<float> power;
  std::vector<float> limit;
  Instant now{};
  for (std::size_t i = 0; i < samples; ++i) {
    at.push_back(now += std::chrono::milliseconds(500 + random() % 3000));
    const bool idle = i / 50 % 3 == 0;
    util.push_back(idle ? 0 : static_cast<float>(5 + random() % 96));
    power.push_back(60 + 5 * util.back() + static_cast<float>(random() % 20));
    limit.push_back(random() % 100 == 0 ? kUnknownSample : 700);
    if (random() % 50 == 0) (random() % 2 == 0 ? util : power).back() = kUnknownSample;
  }
  PowerLearner whole;
  const Device device;
  std::vector<Reading> readings(samples);
  for (std::size_t i = 0; i < samples; ++i) {
    Reading& one = readings[i];
    for (const auto& [metric, column] :
         {std::pair{Metric::util, &util}, std::pair{Metric::power, &power}, std::pair{Metric::power_limit, &limit}})
      std::isnan((*column)[i]) ? one.miss(metric, Absence::failed) : one.set(metric, (*column)[i]);
    learn(whole, device, at[i], one);
  }
  PowerLearner cut;
  LearnedColumns columns;
  std::size_t known = 0;
  for (std::size_t from = 0; from < samples;) {
    const std::size_t count = std::min<std::size_t>(1 + random() % 300, samples - from);
    Block block;
    block.at = std::span(at).subspan(from, count);
    block.value[index_of(Metric::util)] = std::span(util).subspan(from, count);
    block.value[index_of(Metric::power)] = std::span(power).subspan(from, count);
    block.value[index_of(Metric::power_limit)] = std::span(limit).subspan(from, count);
    const Block with = columns.add(cut, block);
    for (std::size_t i = 0; i < count; ++i)
      for (const Metric metric : {Metric::effort, Metric::learned, Metric::idle_power}) {
        const double live = readings[from + i][metric];
        const double replayed = static_cast<double>(with[metric][i]);
        ASSERT_EQ(std::isnan(live), std::isnan(replayed)) << info(metric).name << " at " << from + i;
        if (std::isnan(live)) continue;
        ASSERT_NEAR(live, replayed, 1e-3 * (1 + live));
        ++known;
      }
    from += count;
  }
  EXPECT_GT(known, samples);
}

TEST(LearnTest, SaysWhyASignalIsMissing) {
  PowerLearner learner;
  Device device;
  Reading reading;
  reading.set(Metric::util, 100);
  reading.set(Metric::power, 500);
  learn(learner, device, Instant{1s}, reading);
  EXPECT_EQ(reading.why_missing(Metric::effort), Absence::not_learned);
  EXPECT_EQ(reading.why_missing(Metric::idle_power), Absence::not_learned);
  EXPECT_EQ(reading[Metric::learned], 0);
  PowerLearner experienced = learned_card().learner;
  reading.set(Metric::util, 1);
  learn(experienced, device, Instant{2h}, reading);
  EXPECT_EQ(reading.why_missing(Metric::effort), Absence::little_work);
  reading.miss(Metric::power, Absence::no_permission);
  learn(learner, device, Instant{3s}, reading);
  for (const Metric metric : {Metric::effort, Metric::learned, Metric::idle_power})
    EXPECT_EQ(reading.why_missing(metric), Absence::no_permission);
}

TEST(LearnTest, EffortIsUnknownOnRdna) {
  PowerLearner learner = learned_card().learner;
  Device device;
  device.idle_looks_hung = true;
  Reading reading;
  reading.set(Metric::util, 100);
  reading.set(Metric::power, 80);
  learn(learner, device, Instant{2h}, reading);
  EXPECT_EQ(reading.why_missing(Metric::effort), Absence::looks_hung);
  EXPECT_EQ(reading.why_missing(Metric::learned), Absence::looks_hung);
  EXPECT_TRUE(std::isnan(reading.watts_per_percent));
}

TEST(LearnTest, EffortIsUnknownInARecordingOfAnRdnaCard) {
  for (const bool rdna : {false, true}) {
    PowerLearner learner = learned_card().learner;
    const std::vector<Instant> at = {Instant{2h}, Instant{2h + 1s}};
    const std::vector<float> util(2, 100);
    const std::vector<float> power(2, 152);
    Block block;
    block.at = at;
    block.value[index_of(Metric::util)] = util;
    block.value[index_of(Metric::power)] = power;
    LearnedColumns columns;
    const Block with = columns.add(learner, block, rdna);
    for (const Metric metric : {Metric::effort, Metric::learned}) EXPECT_EQ(std::isnan(with[metric][1]), rdna);
    EXPECT_EQ(with[Metric::idle_power][1], 70);
  }
}

TEST(LearnTest, TheNewestDataHaveAnEffortOfTheirOwn) {
  PowerLearner learner = learned_card().learner;
  const Device device;
  Reading reading;
  reading.set(Metric::util, 100);
  reading.set(Metric::power, 152);  // the mean of a hang that has just ended
  reading.util_basis = reading.power_basis = Basis::mean;
  reading.util_newest = {98, 100};
  reading.power_newest = {150, 600};
  learn(learner, device, Instant{2h}, reading);
  EXPECT_LT(reading[Metric::effort], 45);
  EXPECT_LT(reading.newest(Metric::effort).low, 45);
  EXPECT_GT(reading.newest(Metric::effort).high, 100);
  reading.power_newest = {};  // nothing newer is known
  learn(learner, device, Instant{3h}, reading);
  EXPECT_TRUE(std::isnan(reading.newest(Metric::effort).high));
}

TEST(LearnTest, ASleepingCardDoesNotShowItsIdlePower) {
  PowerLearner learner;
  const Device device;
  Reading reading;
  reading.set(Metric::util, 0);
  reading.set(Metric::power, 0);
  reading.asleep = true;
  for (int i = 1; i < 100; ++i) learn(learner, device, Instant{i * 1s}, reading);
  EXPECT_TRUE(std::isnan(learner.idle_watts()));
}

}  // namespace
}  // namespace lull
