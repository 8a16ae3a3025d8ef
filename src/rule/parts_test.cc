// The parts of judging, each by itself: comparing columns, windows, stretches, and what
// an evaluator refuses.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>
#include <vector>

#include "rule/compare.h"
#include "rule/oracle_test.h"
#include "rule/policy.h"
#include "rule/stretch.h"
#include "rule/window.h"

namespace lull {
namespace {

using std::chrono::seconds;

Instant at(double second) { return Instant(Duration(static_cast<std::int64_t>(std::llround(second * 1e9)))); }

TEST(CompareValues, IsTheSameAsOneByOne) {
  EXPECT_TRUE(rc::check([] {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const auto values = *rc::gen::container<std::vector<float>>(
        rc::gen::oneOf(rc::gen::element(0.0F, -0.0F, 5.0F, kUnknownSample, kInfinity, -kInfinity),
                       rc::gen::map(rc::gen::inRange(0, 11), [](int v) { return static_cast<float>(v); })));
    const std::size_t samples = std::min(values.size() * 7, kBlockSamples);
    std::vector<float> column(samples);
    for (std::size_t i = 0; i < samples; ++i) column[i] = values[i % values.size()];
    for (const Compare compare :
         {Compare::below, Compare::at_most, Compare::above, Compare::at_least, Compare::equal, Compare::unequal}) {
      Answers fast{};
      Answers slow{};
      compare_values(column.data(), samples, compare, 5, fast.yes.data(), fast.no.data());
      compare_values_plainly(column.data(), samples, compare, 5, slow.yes.data(), slow.no.data());
      RC_ASSERT(fast.yes == slow.yes);
      RC_ASSERT(fast.no == slow.no);
    }
  }));
}

TEST(CompareValues, WhatIsNotFiniteIsUnknown) {
  const float infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values(128, infinity);
  values[1] = -infinity;
  values[2] = kUnknownSample;
  for (const Compare compare : {Compare::below, Compare::above, Compare::unequal}) {
    Answers answers{};
    compare_values(values.data(), values.size(), compare, 5, answers.yes.data(), answers.no.data());
    EXPECT_EQ(answers.yes[0] | answers.no[0] | answers.yes[1] | answers.no[1], 0U);
  }
}

TEST(WindowMean, WeighsByTimeAndNeedsTheWholeWindow) {
  WindowMean window(seconds(10));
  EXPECT_TRUE(std::isnan(window.push(at(0), 100, false)));  // stands for a time that was not seen
  EXPECT_TRUE(std::isnan(window.push(at(5), 10, false)));
  EXPECT_FLOAT_EQ(window.push(at(10), 20, false), 15);
  EXPECT_FLOAT_EQ(window.push(at(11), 40, false), (10 * 4 + 20 * 5 + 40 * 1) / 10.0F);
  EXPECT_FLOAT_EQ(window.push(at(26), 7, false), 7);  // one value covers it all
}

TEST(WindowMean, AnUnknownOrAGapBlocksItUntilItHasLeft) {
  WindowMean window(seconds(3));
  for (int t = 0; t <= 3; ++t) window.push(at(t), 1, false);
  EXPECT_TRUE(std::isnan(window.push(at(4), kUnknownSample, false)));
  EXPECT_TRUE(std::isnan(window.push(at(5), 1, false)));
  EXPECT_TRUE(std::isnan(window.push(at(6), 1, false)));
  EXPECT_FLOAT_EQ(window.push(at(7), 1, false), 1);
  EXPECT_TRUE(std::isnan(window.push(at(100), 1, true)));
  EXPECT_TRUE(std::isnan(window.push(at(102), 1, false)));
  EXPECT_FLOAT_EQ(window.push(at(103), 1, false), 1);
}

TEST(WindowMean, AHugeValueLeavesNoErrorBehind) {
  WindowMean window(seconds(10));
  window.push(at(0), 0, false);
  window.push(at(1), 3e38F, false);
  for (int t = 2; t <= 11; ++t) window.push(at(t), 4, false);
  EXPECT_EQ(window.push(at(12), 4, false), 4.0F);
}

TEST(WindowMean, FasterThanItsResolutionStaysNearTheTruth) {
  // A ramp at 1 kHz over a window of 10 s: 10 000 samples in about 1 000 pieces.
  WindowMean window(seconds(10));
  float mean = kUnknownSample;
  for (int i = 0; i <= 40'000; ++i) {
    mean = window.push(at(i * 0.001), static_cast<float>(i) * 0.001F, false);
    ASSERT_EQ(std::isnan(mean), i < 10'000) << i;
    if (i >= 10'000) {
      ASSERT_NEAR(mean, i * 0.001 - 5, 0.02);
    }
  }
}

TEST(Evaluator, RefusesTimeThatGoesBackwardsAndStaysAsItWas) {
  const auto rule = *parse_rule("util < 5 for 3 samples");
  Evaluator evaluator = Evaluator::compile(rule, {.gpus = 1});
  const std::vector<float> util = {0, 0, 0};
  const auto feed = [&](std::vector<Instant> times, Answers& answers) {
    Block block{.at = times, .value = {}};
    block.value[index_of(Metric::util)] = std::span(util).first(times.size());
    return evaluator.feed({&block, 1}, answers);
  };
  Answers answers;
  ASSERT_TRUE(feed({at(10), at(11)}, answers));
  EXPECT_EQ(feed({at(9)}, answers).error().what, "time goes backwards");
  EXPECT_EQ(feed({at(12), at(11.5)}, answers).error().what, "time goes backwards");
  ASSERT_TRUE(feed({at(12)}, answers));
  EXPECT_EQ(answers[0], Truth::yes);  // the third in a row
}

TEST(Evaluator, RefusesBlocksThatDoNotFit) {
  Evaluator evaluator = Evaluator::compile(*parse_rule("util < 5"), {.gpus = 2});
  const std::vector<Instant> times = {at(0), at(1)};
  const std::vector<Instant> others = {at(0), at(2)};
  const std::vector<float> util = {0};
  Answers answers;
  std::vector<Block> scope(1, Block{.at = times, .value = {}});
  EXPECT_FALSE(evaluator.feed(scope, answers).has_value());
  scope.push_back(Block{.at = others, .value = {}});
  EXPECT_FALSE(evaluator.feed(scope, answers).has_value());
  scope[1].at = times;
  scope[1].value[index_of(Metric::util)] = util;
  EXPECT_FALSE(evaluator.feed(scope, answers).has_value());
  const std::vector<Instant> many(kBlockSamples + 1, at(0));
  scope = {Block{.at = many, .value = {}}, Block{.at = many, .value = {}}};
  EXPECT_FALSE(evaluator.feed(scope, answers).has_value());
}

TEST(Evaluator, NoGpuInScopeIsUnknown) {
  Evaluator evaluator = Evaluator::compile(*parse_rule("util < 5"), {.gpus = 0});
  Answers answers;
  ASSERT_TRUE(evaluator.feed({}, answers));
  EXPECT_EQ(answers[0], Truth::unknown);
}

TEST(Evaluator, TimesAtTheEndsOfTheRangeAreJustTimes) {
  using Limits = std::numeric_limits<std::int64_t>;
  Evaluator evaluator = Evaluator::compile(*parse_rule("mean(util, 1d) < 5 or util < 5 for 1d"), {.gpus = 1});
  const std::vector<Instant> times = {Instant(Duration(Limits::min())), Instant(Duration(Limits::min() + 1)), at(0),
                                      Instant(Duration(Limits::max()))};
  const std::vector<float> util(4, 0.0F);
  Block block{.at = times, .value = {}};
  block.value[index_of(Metric::util)] = util;
  Answers answers;
  ASSERT_TRUE(evaluator.feed({&block, 1}, answers));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(answers[i], Truth::unknown);
}

TEST(Evaluator, ABlockWithoutSamplesLeavesNoAnswersOfBefore) {
  Evaluator evaluator = Evaluator::compile(*parse_rule("util < 5"), {.gpus = 1});
  const std::vector<Instant> times = {at(0)};
  const std::vector<float> util = {0.0F};
  Block block{.at = times, .value = {}};
  block.value[index_of(Metric::util)] = util;
  Answers answers;
  Answers condition;
  ASSERT_TRUE(evaluator.feed({&block, 1}, answers, &condition));
  ASSERT_EQ(answers[0], Truth::yes);
  const Block empty{.at = {}, .value = {}};
  ASSERT_TRUE(evaluator.feed({&empty, 1}, answers, &condition));
  EXPECT_EQ(answers[0], Truth::unknown);
  EXPECT_EQ(condition[0], Truth::unknown);
}

// Stretches, against a plain walk over the samples.
TEST(Stretches, AreTheMaximalRunsOfYesWithoutAGap) {
  EXPECT_TRUE(rc::check([] {
    const auto samples = *rc::gen::inRange<std::size_t>(1, 200);
    const auto truths =
        *rc::gen::container<std::vector<int>>(samples, rc::gen::weightedElement<int>({{6, 2}, {1, 1}, {1, 0}}));
    const auto steps = *rc::gen::container<std::vector<int>>(samples, rc::gen::weightedElement<int>({{12, 1}, {1, 9}}));
    std::vector<Instant> times;
    int now = 0;
    for (const int step : steps) times.push_back(at(now += step));
    const auto gap = [&](std::size_t i) { return i > 0 && times[i] - times[i - 1] > seconds(3); };

    std::vector<Stretch> expected;
    for (std::size_t i = 0; i < samples;) {
      if (truths[i] != 2) {
        ++i;
        continue;
      }
      Stretch stretch{.begin = times[i]};
      std::size_t end = i + 1;
      while (end < samples && truths[end] == 2 && !gap(end)) ++end;
      stretch.samples = end - i;
      stretch.last = times[end - 1];
      const bool cut = end == samples || gap(end);
      stretch.end = cut ? stretch.last : times[end];
      stretch.ending = end == samples     ? StretchEnd::end
                       : gap(end)         ? StretchEnd::gap
                       : truths[end] == 1 ? StretchEnd::came_back
                                          : StretchEnd::unknown;
      if (stretch.samples >= 3) stretch.fired = times[i + 2];
      expected.push_back(stretch);
      i = end;
    }

    // 2 is below the limit, 1 above it, 0 unknown.
    std::vector<float> util;
    for (const int truth : truths) util.push_back(truth == 2 ? 0.0F : truth == 1 ? 50.0F : kUnknownSample);
    PolicyEvaluator evaluator =
        PolicyEvaluator::compile(*Policy::parse("util < 5 for 3 samples"), {.gpus = 1, .interval = seconds(1)});
    StretchFinder finder;
    std::vector<Stretch> found;
    for (std::size_t from = 0; from < samples;) {
      const auto to = std::min(samples, from + *rc::gen::inRange<std::size_t>(1, 100));
      Block block{.at = std::span(times).subspan(from, to - from), .value = {}};
      block.value[index_of(Metric::util)] = std::span(util).subspan(from, to - from);
      PolicyAnswers answers;
      RC_ASSERT(evaluator.feed({&block, 1}, answers).has_value());
      finder.feed(block.at, answers, found);
      from = to;
    }
    finder.finish(found);
    RC_ASSERT(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      RC_ASSERT(found[i].begin == expected[i].begin);
      RC_ASSERT(found[i].last == expected[i].last);
      RC_ASSERT(found[i].end == expected[i].end);
      RC_ASSERT(found[i].samples == expected[i].samples);
      RC_ASSERT(found[i].fired == expected[i].fired);
      RC_ASSERT(found[i].ending == expected[i].ending);
    }
  }));
}

}  // namespace
}  // namespace lull
