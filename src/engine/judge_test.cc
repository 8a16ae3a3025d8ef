#include "engine/judge.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "gpu/inventory_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// GPUs whose readings a test sets, sampled once a second.
struct Machine {
  explicit Machine(unsigned gpus) {
    snapshot.inventory = gpus_for_test(gpus);
    snapshot.readings.resize(gpus);
    snapshot.wall = WallTime(1'700'000'000s);
    for (unsigned g = 0; g < gpus; ++g) set(g, 0);
  }
  void set(unsigned gpu, double util, double power = 70) {
    snapshot.readings[gpu].set(Metric::util, util);
    snapshot.readings[gpu].set(Metric::power, power);
    snapshot.readings[gpu].set(Metric::power_limit, 700);
  }
  const Snapshot& after(Duration time = 1s) {
    snapshot.at += time;
    snapshot.wall += time;
    return snapshot;
  }
  // The inventory as it looks when only these are left, in this order.
  void only(const std::vector<unsigned>& gpus) {
    auto inventory = std::make_shared<Inventory>();
    std::vector<Reading> readings;
    for (const unsigned g : gpus) {
      const std::string uuid = "GPU-" + std::to_string(g);
      Device device;
      device.index = static_cast<unsigned>(inventory->devices.size());
      device.uuid = uuid;
      inventory->devices.push_back(device);
      readings.emplace_back();
      readings.back().set(Metric::util, 0);
    }
    snapshot.inventory = inventory;
    snapshot.readings = readings;
  }
  std::vector<Device> scope() const { return snapshot.inventory->devices; }
  Snapshot snapshot;
};

Judge judge_for(const Machine& machine, const char* rule, const char* arm = nullptr, JudgeOptions options = {}) {
  return {*Policy::parse(rule, arm == nullptr ? std::nullopt : std::optional<std::string_view>(arm)), machine.scope(),
          options};
}

TEST(Judge, FiresOnceWhenItHasHeld) {
  Machine machine(2);
  Judge judge = judge_for(machine, "util < 5 for 3s");
  std::string fired;
  for (int i = 0; i < 8; ++i) fired += judge.observe(machine.after())->fires ? 'F' : '.';
  EXPECT_EQ(fired, "...F....");
  EXPECT_EQ(judge.verdict().truth, Truth::yes);
  EXPECT_EQ(judge.verdict().held, 7s);
  EXPECT_EQ(judge.verdict().needed.time, 3s);
}

TEST(Judge, TellsProgressBeforeItHolds) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 10 samples");
  for (int i = 0; i < 4; ++i) (void)judge.observe(machine.after());
  EXPECT_EQ(judge.verdict().held_samples, 4U);
  EXPECT_EQ(judge.verdict().condition, Truth::yes);
  EXPECT_NE(judge.verdict().truth, Truth::yes);
  EXPECT_EQ(headline(judge.explain()), "'util < 5 for 10 samples' on GPU 0: 4 samples of 10 samples so far");
}

TEST(Judge, AnUnreadableGpuIsUnknownUnlessAnotherIsBusy) {
  Machine machine(3);
  machine.snapshot.readings[1].miss_all(Absence::lost);
  Judge judge = judge_for(machine, "util < 5 for 2s");
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(judge.observe(machine.after())->fires);
  EXPECT_EQ(judge.verdict().truth, Truth::unknown);
  ASSERT_EQ(judge.missing().size(), 1U);
  EXPECT_EQ(to_string(judge.missing()[0]), "GPU 1 gives no util (GPU is lost)");
  machine.set(2, 80);
  EXPECT_EQ(judge.observe(machine.after())->truth, Truth::no);
}

TEST(Judge, IgnoresMissingGpusWhereAsked) {
  Machine machine(2);
  machine.snapshot.readings[1].miss(Metric::util, Absence::not_supported);
  Judge judge = judge_for(machine, "util < 5 for 2s", nullptr, {.missing = WhenMissing::ignore});
  std::string fired;
  for (int i = 0; i < 4; ++i) fired += judge.observe(machine.after())->fires ? 'F' : '.';
  EXPECT_EQ(fired, "..F.");
}

TEST(Judge, SaysWhichSignalsWouldDoInstead) {
  Machine machine(3);
  for (const unsigned g : {0U, 2U}) machine.snapshot.readings[g].miss(Metric::util, Absence::not_supported);
  Judge judge = judge_for(machine, "util < 5 for 2s");
  (void)judge.observe(machine.after());
  EXPECT_EQ(missing_line(judge.missing()),
            "this rule cannot be judged while GPUs 0, 2 give no util (not supported); power would do");
}

TEST(Judge, OneFailedReadingBreaksTheStreak) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 3s");
  for (int i = 0; i < 3; ++i) (void)judge.observe(machine.after());
  machine.snapshot.readings[0].miss(Metric::util, Absence::no_answer);
  EXPECT_EQ(judge.observe(machine.after())->truth, Truth::unknown);
  machine.set(0, 0);
  std::string fired;
  for (int i = 0; i < 5; ++i) fired += judge.observe(machine.after())->fires ? 'F' : '.';
  EXPECT_EQ(fired, "...F.");
}

TEST(Judge, AGapBreaksTheStreak) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 1h");
  (void)judge.observe(machine.after());
  EXPECT_FALSE(judge.observe(machine.after(2h))->fires);
  EXPECT_EQ(judge.verdict().held, 0s);
}

TEST(Judge, WhatIsExplainedBeginsAfterAGap) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 3s");
  for (int i = 0; i < 3; ++i) (void)judge.observe(machine.after());
  EXPECT_EQ(judge.explain().window, 2s);
  (void)judge.observe(machine.after(2h));
  EXPECT_EQ(judge.explain().window, 0s);
}

TEST(Judge, WhatWasSeenBeforeIsNoAnswerWhereTimeGoesBackwards) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 1s");
  (void)judge.observe(machine.after());
  ASSERT_EQ(judge.observe(machine.after())->truth, Truth::yes);
  EXPECT_FALSE(judge.observe(machine.after(-1s)));
  EXPECT_EQ(judge.verdict().truth, Truth::unknown);
}

TEST(Judge, RefusesTimeThatGoesBackwards) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 2s");
  (void)judge.observe(machine.after());
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.observe(machine.after(-1s)).error().what, "time goes backwards");
  machine.after(1s);
  EXPECT_TRUE(judge.observe(machine.after())->fires);  // as if nothing had been said
}

TEST(Judge, FollowsGpusByUuid) {
  Machine machine(2);
  Judge judge = judge_for(machine, "util < 5 for 2s");
  (void)judge.observe(machine.after());
  machine.only({1, 0});  // enumerated the other way round: still the same GPUs
  (void)judge.observe(machine.after());
  EXPECT_TRUE(judge.observe(machine.after())->fires);
  machine.only({1});
  EXPECT_EQ(judge.observe(machine.after())->truth, Truth::unknown);
  ASSERT_EQ(judge.missing().size(), 1U);
  EXPECT_EQ(judge.missing()[0].gpu, "0");
  EXPECT_EQ(judge.missing()[0].why, Absence::lost);
  machine.only({0, 1});
  (void)judge.observe(machine.after());
  (void)judge.observe(machine.after());
  EXPECT_TRUE(judge.observe(machine.after())->fires);
}

TEST(Judge, AVanishedDriverIsUnknownAndSaid) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 2s");
  (void)judge.observe(machine.after());
  machine.only({});
  machine.snapshot.driver = {Absence::no_driver, "libnvidia-ml.so.1 is not there"};
  EXPECT_EQ(judge.observe(machine.after())->truth, Truth::unknown);
  EXPECT_EQ(judge.missing()[0].why, Absence::no_driver);
  EXPECT_EQ(to_string(judge.explain(), true).back(), "  driver is not loaded: libnvidia-ml.so.1 is not there");
  machine.snapshot.driver.absence = Absence::mismatch;  // in the same words
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.missing()[0].why, Absence::mismatch);
  EXPECT_NE(to_string(judge.explain(), true).back(), "  driver is not loaded: libnvidia-ml.so.1 is not there");
}

TEST(Judge, NoGpuInScopeNeverFires) {
  Machine machine(0);
  Judge judge = judge_for(machine, "util < 5 for 0s");
  for (int i = 0; i < 5; ++i) {
    const auto verdict = judge.observe(machine.after());
    EXPECT_EQ(verdict->truth, Truth::unknown);
    EXPECT_FALSE(verdict->fires);
  }
  EXPECT_EQ(headline(judge.explain()), "'util < 5 for 0s' cannot be judged: there is no GPU to judge");
}

TEST(Judge, ArmsFirstAndStaysArmedInANewScope) {
  Machine machine(2);
  Judge judge = judge_for(machine, "util < 5 for 2s", "util > 80 for 1s");
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(judge.observe(machine.after())->fires);
  EXPECT_FALSE(judge.verdict().armed);
  for (const unsigned g : {0U, 1U}) machine.set(g, 99);
  for (int i = 0; i < 2; ++i) (void)judge.observe(machine.after());
  EXPECT_TRUE(judge.verdict().armed);
  judge.set_scope({machine.scope()[1]});
  EXPECT_TRUE(judge.armed());
  machine.set(1, 0);  // GPU 0 works on: it is no longer looked at
  std::string fired;
  for (int i = 0; i < 4; ++i) fired += judge.observe(machine.after())->fires ? 'F' : '.';
  EXPECT_EQ(fired, "..F.");
}

TEST(Judge, AsManyOtherGpusAreAnotherScope) {
  Machine machine(2);
  Judge judge(*Policy::parse("util < 5 for 3s"), {machine.scope()[0]}, {});
  for (int i = 0; i < 3; ++i) (void)judge.observe(machine.after());
  judge.set_scope({machine.scope()[1]});
  EXPECT_NE(judge.observe(machine.after())->truth, Truth::yes) << "of that one nothing was seen";
  judge.set_scope({machine.scope()[1]});
  for (int i = 0; i < 2; ++i) (void)judge.observe(machine.after());
  EXPECT_EQ(judge.observe(machine.after())->truth, Truth::yes) << "the same again costs nothing";
}

// ---- the newest data alone

// A reading whose mean is `mean`, of which the newest data are from low to high.
void set_util(Reading& reading, double mean, double low, double high) {
  reading.set(Metric::util, mean);
  reading.util_basis = Basis::mean;
  reading.util_newest = {low, high};
}

TEST(JudgeNewest, SaysYesOnlyWhereLowestAndHighestDo) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 50 for 1h");
  const auto newest = [&](double mean, double low, double high) {
    set_util(machine.snapshot.readings[0], mean, low, high);
    (void)judge.observe(machine.after());
    return judge.newest();
  };
  EXPECT_EQ(judge.newest(), Truth::unknown) << "nothing was seen";
  EXPECT_EQ(newest(23, 100, 100), Truth::no);
  EXPECT_EQ(newest(23, 0, 100), Truth::no);
  EXPECT_EQ(newest(23, 0, 49), Truth::yes);
  EXPECT_EQ(newest(100, 0, 0), Truth::yes) << "the mean has its own say";
  EXPECT_EQ(newest(23, kUnknown, kUnknown), Truth::unknown) << "the mean alone is not the newest";
  machine.snapshot.readings[0].miss(Metric::util, Absence::failed);
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.newest(), Truth::unknown);
}

TEST(JudgeNewest, AValueOfTheMomentIsTheNewest) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 50 and power < 100W for 1h");
  machine.set(0, 10);
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.newest(), Truth::yes);
  machine.set(0, 60);
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.newest(), Truth::no);
}

TEST(JudgeNewest, EveryCombinationOfSignalsMustSayYes) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 50 or power > 100W");
  Reading& reading = machine.snapshot.readings[0];
  set_util(reading, 10, 0, 90);
  reading.power_basis = Basis::mean;
  reading.power_newest = {50, 200};
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.newest(), Truth::no) << "it may work at 50 W";
}

TEST(JudgeNewest, WhereHighIsWantedTheLowestCounts) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util > 50");
  const auto newest = [&](double low, double high) {
    set_util(machine.snapshot.readings[0], 80, low, high);
    (void)judge.observe(machine.after());
    return judge.newest();
  };
  EXPECT_EQ(newest(0, 100), Truth::no);
  EXPECT_EQ(newest(60, 100), Truth::yes);
}

TEST(JudgeNewest, WhatOnlyTheArmingRuleLooksAtIsNotAskedFor) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 10s", "power > 50W");
  Reading& reading = machine.snapshot.readings[0];
  set_util(reading, 0, 0, 0);
  reading.set(Metric::power, 60);
  reading.power_basis = Basis::mean;
  reading.power_newest = {kUnknown, kUnknown};
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.newest(), Truth::yes);
}

TEST(JudgeNewest, ForsInsideAndMeansOverTimeAreOfNow) {
  Machine machine(2);
  const auto newest = [&](const char* rule, double first, double second) {
    Judge judge = judge_for(machine, rule);
    set_util(machine.snapshot.readings[0], 0, first, first);
    set_util(machine.snapshot.readings[1], 0, second, second);
    (void)judge.observe(machine.after());
    return judge.newest();
  };
  EXPECT_EQ(newest("any(util < 5 for 10s)", 0, 100), Truth::yes);
  EXPECT_EQ(newest("any(util < 5 for 10s)", 100, 100), Truth::no);
  EXPECT_EQ(newest("mean(util, 10m) < 5", 0, 0), Truth::yes);
  EXPECT_EQ(newest("mean(util, 10m) < 5", 0, 100), Truth::no);
  EXPECT_EQ(newest("not mean(util, 10m) >= 5", 100, 100), Truth::no);
  EXPECT_EQ(newest("not util >= 5 for 10s", 100, 100), Truth::no);
  EXPECT_EQ(newest("not util >= 5 for 10s", 0, 100), Truth::yes) << "not all of them work";
  // What asks for work in the past is not asked of the present.
  EXPECT_EQ(newest("util < 5 for 10s and mean(util, 1h) > 50", 0, 0), Truth::yes);
  EXPECT_EQ(newest("util < 5 for 10s and not mean(util, 1h) < 50", 0, 0), Truth::yes);
  EXPECT_EQ(newest("util < 5 for 10s and mean(util, 1h) > 50", 0, 100), Truth::no);
}

TEST(Judge, AFiringThatHasToBeArmedAgainDoesNotSayNotArmedYet) {
  Machine machine(1);
  Policy policy = *Policy::parse("util < 5 for 1s", "util > 80 for 1s");
  policy.rearm = true;
  Judge judge(std::move(policy), machine.scope(), {});
  machine.set(0, 99);
  for (int i = 0; i < 2; ++i) (void)judge.observe(machine.after());
  machine.set(0, 0);
  (void)judge.observe(machine.after());
  ASSERT_TRUE(judge.observe(machine.after())->fires);
  EXPECT_EQ(headline(judge.explain()).find("not armed"), std::string::npos) << headline(judge.explain());
  ASSERT_FALSE(judge.observe(machine.after())->fires);
  EXPECT_NE(headline(judge.explain()).find("not armed yet"), std::string::npos) << headline(judge.explain());
}

TEST(Judge, JobSignalsAreColumnsLikeAnyOther) {
  Machine machine(2);
  Judge judge = judge_for(machine, "util < 5 and cpu < 2 for 1s");
  Facts job;
  job.set(Metric::cpu, 50);
  EXPECT_EQ(judge.observe(machine.after(), job)->truth, Truth::no);
  job.set(Metric::cpu, 0);
  (void)judge.observe(machine.after(), job);
  EXPECT_TRUE(judge.observe(machine.after(), job)->fires);
  EXPECT_EQ(judge.explain().stories.size(), 3U);  // util of two GPUs, cpu of the job once
}

TEST(Judge, ARuleOnTheJobAloneNeedsNoGpuAndNamesNone) {
  Machine machine(2);
  Judge judge = judge_for(machine, "cpu < 2 for 1s");
  Facts job;
  job.set(Metric::cpu, 1);
  (void)judge.observe(machine.after(), job);
  EXPECT_TRUE(judge.observe(machine.after(), job)->fires);
  EXPECT_TRUE(judge.explain().gpus.empty());
  EXPECT_EQ(judge.explain().stories.size(), 1U);
  EXPECT_EQ(headline(judge.explain()).find("GPU"), std::string::npos) << headline(judge.explain());
  EXPECT_TRUE(headline(judge.explain()).starts_with("'cpu < 2 for 1s' has held for 1s, since "))
      << headline(judge.explain());
  (void)judge.observe(machine.after());
  EXPECT_EQ(judge.verdict().truth, Truth::unknown) << "nobody looked at the job";
}

TEST(Explanation, NamesTheGpusForWhichTheRuleHeldAndForHowLong) {
  Machine machine(3);
  machine.set(1, 90);
  for (const char* rule : {"any(util < 5 for 2s)", "any(util < 5) for 2s", "any(any(util < 5 for 2s))"}) {
    Judge judge = judge_for(machine, rule);
    machine.set(2, 90);
    for (int i = 0; i < 3; ++i) (void)judge.observe(machine.after());
    ASSERT_EQ(judge.verdict().truth, Truth::yes) << rule;
    EXPECT_EQ(judge.explain().gpus, std::vector<std::string>{"0"}) << rule;
    EXPECT_EQ(judge.explain().ids, std::vector<DeviceId>{{"GPU-0"}}) << rule;
    EXPECT_EQ(judge.explain().held, 2s) << rule;
    EXPECT_EQ(judge.explain().stories.size(), 1U) << rule;
    machine.set(2, 0);
    for (int i = 0; i < 4; ++i) (void)judge.observe(machine.after());
    EXPECT_EQ(judge.explain().gpus, (std::vector<std::string>{"0", "2"})) << rule;
  }
  Judge mean = judge_for(machine, "mean(util) < 50 for 1s");
  for (int i = 0; i < 3; ++i) (void)mean.observe(machine.after());
  EXPECT_EQ(mean.explain().gpus, (std::vector<std::string>{"0", "1", "2"})) << "the mean is of them all";
  // They took turns: none of them held it for so long.
  Judge turns = judge_for(machine, "any(util) < 5 for 4s");
  for (int i = 0; i < 6; ++i) {
    machine.set(0, i < 3 ? 0 : 90);
    machine.set(2, i < 3 ? 90 : 0);
    (void)turns.observe(machine.after());
  }
  ASSERT_EQ(turns.verdict().truth, Truth::yes);
  EXPECT_EQ(turns.explain().gpus, (std::vector<std::string>{"0", "1", "2"}));
}

TEST(Explanation, AGpuThatGaveNothingAndWasIgnoredIsNotNamed) {
  Machine machine(2);
  machine.snapshot.readings[1].miss_all(Absence::lost);
  Judge judge = judge_for(machine, "util < 5 for 1s", nullptr, {.missing = WhenMissing::ignore});
  for (int i = 0; i < 2; ++i) (void)judge.observe(machine.after());
  ASSERT_TRUE(judge.verdict().fires);
  EXPECT_EQ(judge.explain().gpus, std::vector<std::string>{"0"});
  EXPECT_EQ(to_string(judge.explain(), false).back(), "  ignored: GPU 1 gives no util (GPU is lost)");
}

TEST(Explanation, ShowsTheMeanThatTheRuleCompares) {
  Machine machine(1);
  Judge judge = judge_for(machine, "mean(util, 4s) < 50");
  for (int i = 0; i < 8; ++i) {
    machine.set(0, i % 2 * 80);
    (void)judge.observe(machine.after());
  }
  ASSERT_EQ(judge.verdict().truth, Truth::yes);
  const Story story = judge.explain().stories.at(0);
  EXPECT_EQ(story.window, 4s);
  EXPECT_NEAR(story.last, 40, 1);
  EXPECT_NE(to_string(judge.explain(), false).at(1).find("mean(util, 4s) "), std::string::npos);
}

TEST(Explanation, AnInnerForKeepsItsHistory) {
  Machine machine(1);
  Judge judge = judge_for(machine, "util < 5 for 20s and power < 50%");
  machine.set(0, 90);
  for (int i = 0; i < 5; ++i) (void)judge.observe(machine.after());
  for (int i = 0; i <= 20; ++i) {
    machine.set(0, i == 7 ? 4 : 0);
    (void)judge.observe(machine.after());
  }
  ASSERT_TRUE(judge.verdict().fires);
  const Explanation why = judge.explain();
  EXPECT_EQ(why.held, 20s);
  EXPECT_EQ(why.window, 20s) << "not from the sample that fired on";
  EXPECT_EQ(why.stories.at(0).worst, 4);
  EXPECT_EQ(why.stories.at(0).trace.size(), 21U);
}

TEST(Judge, SurvivesBeingMoved) {
  Machine machine(1);
  Judge first = judge_for(machine, "util < 5 for 2s");
  (void)first.observe(machine.after());
  Judge second = std::move(first);
  (void)second.observe(machine.after());
  EXPECT_TRUE(second.observe(machine.after())->fires);
}

TEST(Explanation, ShowsTheReadingsThatTheVerdictRestsOn) {
  Machine machine(1);
  machine.set(0, 90, 400);
  Judge judge = judge_for(machine, "util < 5 and power < 30% for 1m");
  for (int i = 0; i < 10; ++i) (void)judge.observe(machine.after());
  machine.set(0, 0);
  for (int i = 0; i < 62; ++i) {
    machine.set(0, i == 30 ? 4 : i % 2, 70 + i);
    (void)judge.observe(machine.after());
  }
  const Explanation explanation = judge.explain();
  ASSERT_EQ(explanation.stories.size(), 2U);
  const Story& util = explanation.stories[0];
  EXPECT_EQ(util.first, 0);
  EXPECT_EQ(util.last, 1);
  EXPECT_EQ(util.worst, 4);
  EXPECT_EQ(util.worst_ago, 31s);
  EXPECT_TRUE(explanation.stories[1].share);
  EXPECT_NEAR(explanation.stories[1].first, 10, 0.01);
  const std::vector<std::string> lines = to_string(explanation, false);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_TRUE(lines[0].starts_with("'util < 5 and power < 30% for 1m' has held for 1m1s on GPU 0, since ")) << lines[0];
  EXPECT_EQ(lines[1].substr(0, 56), "  GPU 0   util      0 % -> 1 %, highest 4 % 31s ago  ___") << lines[1];
  for (const std::string& line : lines)
    for (const char c : line) EXPECT_GE(c, ' ');
}

TEST(History, AWeekTakesNoMoreRoomThanAMinute) {
  History history({Track{}});
  for (int i = 0; i < 600'000; ++i)
    history.add(Instant(std::chrono::seconds(i)), {i == 123'456 ? 77.0F : static_cast<float>(i % 3)});
  const std::vector<float> trace = history.trace(0);
  EXPECT_LE(trace.size(), History::kCells);
  EXPECT_GE(trace.size(), History::kCells / 2);
  EXPECT_EQ(history.tracks()[0].worst, 77);
  EXPECT_EQ(*std::max_element(trace.begin(), trace.end()), 77);  // a burst is not averaged away
  history.restart();
  history.add(Instant(1s), {5});
  EXPECT_EQ(history.trace(0), std::vector<float>{5});
  EXPECT_EQ(history.tracks()[0].worst, 5);
}

TEST(Sparkline, ShowsBurstsUnknownsAndFits) {
  const std::vector<float> values = {0, 50, 100, kUnknownSample};
  EXPECT_EQ(sparkline(values, 10, true, 100), "▁▅█ ");
  EXPECT_EQ(sparkline(values, 10, false, 100), "_=#?");
  EXPECT_EQ(sparkline(values, 2, true, 100), "▅█");
  EXPECT_EQ(sparkline({}, 10, true), "");
  const std::vector<float> flat = {7, 7};
  EXPECT_EQ(sparkline(flat, 10, true), "██");
}

TEST(ValueText, CarriesItsUnit) {
  EXPECT_EQ(value_text(Metric::util, 5), "5 %");
  EXPECT_EQ(value_text(Metric::util, 0.4), "0.4 %");
  EXPECT_EQ(value_text(Metric::power, 123.4), "123 W");
  EXPECT_EQ(value_text(Metric::mem_used, 1 << 30), "1.0 GiB");
  EXPECT_EQ(value_text(Metric::quiet, 90), "1m30s");
  EXPECT_EQ(value_text(Metric::procs, 2), "2");
  EXPECT_EQ(value_text(Metric::util, kUnknown), "?");
}

TEST(Judge, WhatWasNotCountedOfAJobNamesNoGpu) {
  const MissingSignal missing{.gpu = "", .metric = Metric::io, .why = Absence::not_covered, .instead = {}};
  EXPECT_EQ(missing_line(std::vector{missing}),
            "this rule cannot be judged while not all io of the job was counted since the sample before");
}

TEST(Judge, SeveralSignalsThatWouldDoAreListed) {
  const MissingSignal missing{.gpu = "0",
                              .metric = Metric::util,
                              .why = Absence::not_supported,
                              .instead = {Metric::power, Metric::mem_util, Metric::procs}};
  EXPECT_EQ(missing_line(std::vector{missing}),
            "this rule cannot be judged while GPU 0 gives no util (not supported); power, mem_util or procs would do");
}

TEST(Judge, GpusThatLackASignalForDifferentReasonsAreNotJoined) {
  const std::vector<MissingSignal> missing = {
      {.gpu = "0", .metric = Metric::util, .why = Absence::not_supported, .instead = {}},
      {.gpu = "1", .metric = Metric::util, .why = Absence::lost, .instead = {}}};
  EXPECT_EQ(
      missing_line(missing),
      "this rule cannot be judged while GPU 0 gives no util (not supported), and GPU 1 gives no util (GPU is lost)");
}

TEST(Judge, AnExplanationNamesWhatIsMissingOnlyIfTheRuleCannotBeJudged) {
  Explanation explanation;
  explanation.rule = "util < 5 for 1m";
  explanation.gpus = {"0"};
  explanation.missing = {{.gpu = "0", .metric = Metric::util, .why = Absence::not_supported, .instead = {}}};
  explanation.truth = Truth::unknown;
  EXPECT_EQ(to_string(explanation, false).size(), 2U);
  explanation.running = true;
  EXPECT_EQ(to_string(explanation, false).size(), 1U);
  explanation.running = false;
  explanation.truth = Truth::no;
  EXPECT_EQ(to_string(explanation, false).size(), 1U);
}

TEST(Judge, WhatWasNotCoveredBreaksTheStreakAndIsSaid) {
  Machine machine(2);
  Judge judge = judge_for(machine, "util < 5 for 3s");
  EXPECT_FALSE(judge.observe(machine.after()).value().fires);
  machine.after();
  for (Reading& reading : machine.snapshot.readings) {
    reading.miss(Metric::util, Absence::not_covered);
    reading.util_coverage = 0.4;
  }
  const Verdict verdict = judge.observe(machine.snapshot).value();
  EXPECT_EQ(verdict.truth, Truth::unknown);
  EXPECT_EQ(verdict.held_samples, 0U);
  const std::string said = missing_line(judge.missing());
  EXPECT_EQ(said,
            "this rule cannot be judged while util of GPUs 0, 1 was measured for only 40 % of the time since the "
            "sample before");
  for (Reading& reading : machine.snapshot.readings) reading.util_coverage = 0.55;
  (void)judge.observe(machine.after());
  EXPECT_EQ(missing_line(judge.missing()), said) << "not a new story at every sample";
  for (unsigned g = 0; g < 2; ++g) machine.set(g, 0);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(judge.observe(machine.after()).value().fires) << i;
  EXPECT_TRUE(judge.observe(machine.after()).value().fires);
}

}  // namespace
}  // namespace lull
