// The named rule `hung`, with what is learned of the cards: on series of readings, as live and in a replay.

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "config/settings.h"
#include "engine/judge.h"
#include "gpu/power_learner.h"
#include "rule/policy.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

Rule hung() {
  for (const BuiltInRule& rule : built_in_rules())
    if (rule.name == kHangRule) {
      Rule parsed = *parse_rule(rule.text);
      parsed.for_hangs = true;
      return parsed;
    }
  return {};
}
// What it was before anything could be learned.
Rule fixed_rule() { return *parse_rule("any(util) >= 95 and all(util >= 95 or util < 5) and power < 35% for 5m"); }

struct Sample {
  double util;
  double watts;
  double limit;
};
using Series = std::vector<Sample>;

void add(Series& series, int samples, double util, double watts, double limit = 700) {
  series.insert(series.end(), static_cast<std::size_t>(samples), {util, watts, limit});
}

// When the rule fires on one GPU, sampled every 10 s; -1: never.
int fires(const Rule& rule, const Series& series, bool looks_hung = false) {
  auto inventory = std::make_shared<Inventory>();
  Device device;
  device.uuid = "GPU-1";
  device.idle_looks_hung = looks_hung;
  inventory->devices = {device};
  Judge judge(Policy{.idle = rule}, {device}, {.interval = 10s});
  PowerLearner learner;
  Snapshot snapshot;
  snapshot.inventory = inventory;
  for (std::size_t i = 0; i < series.size(); ++i) {
    snapshot.at += 10s;
    Reading reading;
    const auto put = [&](Metric metric, double value) {
      std::isnan(value) ? reading.miss(metric, Absence::failed) : reading.set(metric, value);
    };
    put(Metric::util, series[i].util);
    put(Metric::power, series[i].watts);
    put(Metric::power_limit, series[i].limit);
    learn(learner, device, snapshot.at, reading);
    snapshot.readings = {reading};
    if (judge.observe(snapshot)->fires) return static_cast<int>(i);
  }
  return -1;
}

TEST(HangRuleTest, TheFixedRuleIsInForceWhereNothingIsLearned) {
  Series series;
  add(series, 60, 100, 152);
  EXPECT_EQ(fires(hung(), series), fires(fixed_rule(), series));
  EXPECT_EQ(fires(hung(), series), 30);
  Series healthy;
  add(healthy, 60, 100, 500);
  EXPECT_EQ(fires(hung(), healthy), -1);
  Series limitless;
  add(limitless, 60, 100, 20, kUnknown);
  EXPECT_EQ(fires(hung(), limitless), -1) << "nothing is known of it";
}

TEST(HangRuleTest, AJobThatHangsFromTheStartIsFoundHoweverLongItLasts) {
  Series series;
  add(series, 30, 0, 70);
  add(series, 3000, 100, 152);
  EXPECT_EQ(fires(hung(), series), 60);
}

TEST(HangRuleTest, FindsHangsThatTheFixedRuleMisses) {
  // A T4 at 58 % of its 70 W, and a card without a limit.
  for (const double limit : {70.0, kUnknown}) {
    Series series;
    add(series, 30, 0, 27, limit);
    add(series, 90, 97, 68, limit);
    const int began = static_cast<int>(series.size());
    add(series, 60, 100, 40.6, limit);
    EXPECT_EQ(fires(fixed_rule(), series), -1);
    EXPECT_EQ(fires(hung(), series), began + 30);
  }
}

// The readings of docs/hangs.md.
TEST(HangRuleTest, PublicHangs) {
  struct Hang {
    const char* report;
    double util;
    double watts;
    double limit;
    bool fixed;
    double idle = kUnknown;  // and usual: where they are known
    double usual = kUnknown;
  };
  for (const Hang& hang :
       {Hang{"nccl#1550", 100, 152, 700, true}, Hang{"NeMo#9291", 100, 100, 700, true, 68, 500},
        Hang{"NeMo#9291", 100, 100, 700, true, 68, 690}, Hang{"accelerate#3104", 100, 118, 700, true, 68, 500},
        Hang{"yolov5#2491", 100, 46, 250, true}, Hang{"accelerate#233", 100, 41, 70, false},
        Hang{"AEON-7#10", 96, 13, kUnknown, false, 0, 45}, Hang{"AEON-7#10", 96, 13, kUnknown, false, 13, 45},
        Hang{"spark-vllm-docker#260", 96, 22, kUnknown, false, 4, 45}}) {
    Series series;
    add(series, 60, hang.util, hang.watts, hang.limit);
    EXPECT_EQ(fires(fixed_rule(), series) >= 0, hang.fixed) << hang.report;
    EXPECT_EQ(fires(hung(), series) >= 0, hang.fixed) << hang.report;
    if (std::isnan(hang.idle)) continue;
    Series learned;
    add(learned, 30, 0, hang.idle, hang.limit);
    add(learned, 90, 96, hang.usual, hang.limit);
    learned.insert(learned.end(), series.begin(), series.end());
    EXPECT_EQ(fires(hung(), learned), 150) << hang.report;
  }
}

TEST(HangRuleTest, WhatIsLearnedIsBelievedAndNotTheFixedRule) {
  // A card whose usual work takes a third of its limit.
  Series series;
  add(series, 30, 0, 70);
  add(series, 90, 60, 190);
  add(series, 200, 100, 240);
  EXPECT_NE(fires(fixed_rule(), series), -1);
  EXPECT_EQ(fires(hung(), series), -1);
}

TEST(HangRuleTest, NeverHoldsWhereIdleLooksHung) {
  Series series;
  add(series, 30, 0, 20);
  add(series, 90, 80, 180);
  add(series, 60, 100, 24);
  EXPECT_NE(fires(hung(), series), -1);
  EXPECT_EQ(fires(hung(), series, true), -1);
}

TEST(HangRuleTest, OneOddSampleBeginsAnew) {
  Series series;
  add(series, 30, 0, 70);
  add(series, 90, 100, 570);
  for (int i = 0; i < 10; ++i) {
    add(series, 29, 100, 152);
    add(series, 1, 100, 570);
  }
  EXPECT_EQ(fires(hung(), series), -1);
}

// What docs/hangs.md says can still go wrong, and the rule that it offers to who ends jobs.
TEST(HangRuleTest, ALightJobAfterAHeavyOneReadsAsHungByTheLearnedRuleAlone) {
  const Rule both =
      *parse_rule("any(util) >= 95 and all(util < 5 or util >= 95 and effort < 45 and power < 35%) for 5m");
  for (const auto& [watts, healthy] : {std::pair(300.0, true), std::pair(152.0, false)}) {
    Series series;
    add(series, 30, 0, 70);
    add(series, 90, 100, 650);
    const int began = static_cast<int>(series.size());
    add(series, 60, 100, watts);
    EXPECT_EQ(fires(hung(), series), began + 30);
    EXPECT_EQ(fires(fixed_rule(), series), healthy ? -1 : began + 30);
    EXPECT_EQ(fires(both, series), healthy ? -1 : began + 30);
  }
}

double below(std::mt19937& random, unsigned end) { return static_cast<double>(random() % end); }

// Readings of a card that is idle, works and hangs by turns.
Series some_series(std::mt19937& random, double idle, double full, double limit) {
  Series series;
  const auto draws = [&](double util, double effort) { return idle + (full - idle) * util / 100 * effort; };
  for (int part = 0; part < 8; ++part) {
    const int samples = 5 + static_cast<int>(random() % 60);
    const double util = 10 + below(random, 80);
    switch (random() % 4) {
      case 0: add(series, samples, 0, idle + below(random, 5), limit); break;
      case 1: add(series, samples, util, draws(util, 0.9 + 0.01 * below(random, 20)), limit); break;
      case 2: add(series, samples, 100, draws(100, 0.8 + 0.01 * below(random, 20)), limit); break;
      default: add(series, samples, 100, draws(100, 0.01 * below(random, 30)), limit); break;
    }
  }
  return series;
}

// All that it fires on was seen: five minutes of readings that are a hang by what was learned until then, or by the
// fixed rule where nothing was. (Unknown readings may leave less learned, and so the fixed rule in force.)
TEST(HangRuleTest, UnknownReadingsNeverMakeItFire) {
  std::mt19937 random(11);
  int fired = 0;
  for (int round = 0; round < 3000; ++round) {
    const double idle = 20 + below(random, 60);
    const double full = idle + 50 + below(random, 500);
    Series holes = some_series(random, idle, full, random() % 3 == 0 ? kUnknown : full * (1 + below(random, 3)));
    const auto often = static_cast<unsigned>(2 + random() % 200);
    for (Sample& one : holes) {
      if (random() % often == 0) one.util = kUnknown;
      if (random() % often == 0) one.watts = kUnknown;
      if (random() % often == 0) one.limit = kUnknown;
    }
    const int at = fires(hung(), holes);
    if (at < 0) continue;
    ++fired;
    PowerLearner learner;
    for (int i = 0; i <= at; ++i) {
      const Sample& one = holes[static_cast<std::size_t>(i)];
      const bool learned = learner.seconds(one.util) >= 60;
      const bool spins = learned ? learner.effort(one.util, one.watts) < 45 : one.watts < 0.35 * one.limit;
      if (i >= at - 30) {
        ASSERT_TRUE(one.util >= 95 && spins) << round << ": " << i;
      }
      learner.see(Instant((i + 1) * 10s), one.util, one.watts, one.limit);
    }
  }
  EXPECT_GT(fired, 100);
}

// While it is asked, not while it learns: then nothing but what it would have said itself remains.
TEST(HangRuleTest, UnknownReadingsAfterLearningOnlyTakeFiringsAway) {
  std::mt19937 random(13);
  int fired = 0;
  for (int round = 0; round < 1000; ++round) {
    Series whole;
    add(whole, 30, 0, 70);
    add(whole, 90, 100, 570);
    const std::size_t learned = whole.size();
    const Series rest = some_series(random, 70, 570, 700);
    whole.insert(whole.end(), rest.begin(), rest.end());
    Series holes = whole;
    for (std::size_t i = learned; i < holes.size(); ++i) {
      if (random() % 60 == 0) holes[i].util = kUnknown;
      if (random() % 60 == 0) holes[i].watts = kUnknown;
      if (random() % 60 == 0) holes[i].limit = kUnknown;
    }
    const int before = fires(hung(), whole);
    const int after = fires(hung(), holes);
    if (after < 0) continue;
    ++fired;
    ASSERT_TRUE(before >= 0 && before <= after) << round;
  }
  EXPECT_GT(fired, 50);
}

TEST(IdlePowerTest, IsUnknownUntilItIsLearned) {
  const Rule rule = *parse_rule("power < idle+3W for 1m");
  Series busy;
  add(busy, 100, 40, 71);
  EXPECT_EQ(fires(rule, busy), -1);
  Series series;
  add(series, 20, 0, 70);
  EXPECT_GE(fires(rule, series), 7);
  Series light;  // by 6 W more than idle
  add(light, 5, 0, 70);
  add(light, 100, 3, 76);
  EXPECT_EQ(fires(rule, light), -1);
}

}  // namespace
}  // namespace lull
