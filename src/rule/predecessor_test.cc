// The predecessors' semantics are special cases of ours. Each is written out here as the
// plain loop that it is, and compared with a rule on random readings.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <string>
#include <vector>

#include "rule/oracle_test.h"
#include "rule/policy.h"

namespace lull {
namespace {

using Readings = std::vector<std::vector<int>>;  // [tick][gpu], in %

oracle::Series series_of(const Readings& readings, std::size_t gpus) {
  oracle::Series series;
  series.value.resize(gpus);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    series.at.emplace_back(std::chrono::seconds(5 * i));
    for (std::size_t g = 0; g < gpus; ++g)
      series.value[g][index_of(Metric::util)].push_back(static_cast<float>(readings[i][g]));
  }
  return series;
}

// The tick of the first firing, or the number of ticks if there is none.
std::size_t first_firing(const Policy& policy, const Readings& readings, std::size_t gpus) {
  PolicyEvaluator evaluator = PolicyEvaluator::compile(policy, {.gpus = gpus, .interval = std::chrono::seconds(5)});
  const oracle::Series series = series_of(readings, gpus);
  for (std::size_t i = 0; i < readings.size(); ++i) {
    PolicyAnswers answers;
    EXPECT_TRUE(evaluator.feed(series.blocks(i, i + 1), answers).has_value());
    if (bit(answers.fires, 0)) return i;
  }
  return readings.size();
}

Readings random_readings(std::size_t gpus) {
  const auto ticks = *rc::gen::inRange<std::size_t>(1, 60);
  return *rc::gen::container<Readings>(
      ticks, rc::gen::container<std::vector<int>>(
                 gpus, rc::gen::weightedOneOf<int>(
                           {{4, rc::gen::inRange(0, 50)}, {1, rc::gen::just(50)}, {1, rc::gen::inRange(51, 101)}})));
}

// gpu_idle_timeout: keeps the last N readings of each GPU; idle when, of all GPUs (or any
// one of them), every one of the N was strictly below the threshold.
TEST(Predecessors, IdleTimeoutIsARule) {
  EXPECT_TRUE(rc::check([] {
    const auto gpus = *rc::gen::inRange<std::size_t>(1, 4);
    const auto window = *rc::gen::inRange<std::size_t>(1, 7);
    const int threshold = *rc::gen::inRange(1, 60);
    const bool any = *rc::gen::arbitrary<bool>();
    const Readings readings = random_readings(gpus);

    std::size_t killed = readings.size();
    for (std::size_t tick = 0; tick < readings.size() && killed == readings.size(); ++tick) {
      if (tick + 1 < window) continue;
      std::size_t idle_gpus = 0;
      for (std::size_t g = 0; g < gpus; ++g) {
        bool idle = true;
        for (std::size_t k = tick + 1 - window; k <= tick; ++k) idle = idle && readings[k][g] < threshold;
        idle_gpus += idle ? 1 : 0;
      }
      if (any ? idle_gpus > 0 : idle_gpus == gpus) killed = tick;
    }

    const std::string condition = "util < " + std::to_string(threshold) + " for " + std::to_string(window) + " samples";
    const Policy policy = *Policy::parse(any ? "any(" + condition + ")" : condition);
    RC_ASSERT(first_firing(policy, readings, gpus) == killed);
  }));
}

// gpu_sentinel: the mean of the GPUs; strictly above for A ticks arms, then strictly below
// for K ticks fires.
TEST(Predecessors, SentinelIsAnArmedRule) {
  EXPECT_TRUE(rc::check([] {
    const auto gpus = *rc::gen::inRange<std::size_t>(1, 4);
    const auto arm_ticks = *rc::gen::inRange<int>(1, 6);
    const auto kill_ticks = *rc::gen::inRange<int>(1, 6);
    const int arm_above = *rc::gen::inRange(0, 80);
    const int kill_below = *rc::gen::inRange(1, 80);
    const Readings readings = random_readings(gpus);

    std::size_t killed = readings.size();
    bool armed = false;
    int in_a_row = 0;
    for (std::size_t tick = 0; tick < readings.size() && killed == readings.size(); ++tick) {
      double mean = 0;
      for (const int value : readings[tick]) mean += value;
      mean /= static_cast<double>(gpus);
      in_a_row = (armed ? mean < kill_below : mean > arm_above) ? in_a_row + 1 : 0;
      if (!armed && in_a_row == arm_ticks) {
        armed = true;
        in_a_row = 0;
      } else if (armed && in_a_row == kill_ticks) {
        killed = tick;
      }
    }

    const auto rule = [](const char* compare, int limit, int ticks) {
      return "mean(util) " + std::string(compare) + " " + std::to_string(limit) + " for " + std::to_string(ticks) +
             " samples";
    };
    const Policy policy = *Policy::parse(rule("<", kill_below, kill_ticks), rule(">", arm_above, arm_ticks));
    RC_ASSERT(first_firing(policy, readings, gpus) == killed);
  }));
}

}  // namespace
}  // namespace lull
