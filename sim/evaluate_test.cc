#include "sim/evaluate.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>

#include "nvml/abi.h"
#include "sim/chains.h"
#include "sim/testing.h"

namespace lull::sim {
namespace {

constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kSecond = 1000 * kMs;

// A simulation whose history is written by hand instead of by waiting.
class History {
 public:
  explicit History(const Plan& plan) : sim_(plan) { EXPECT_EQ(mapping_.open(sim_.folder().c_str()), 0); }
  void set(unsigned gpu, Metric metric, std::int64_t at_ns, double value) {
    live().sets[live().set_count++] = {
        at_ns, value, kNone, static_cast<std::uint16_t>(gpu), static_cast<std::uint8_t>(metric), 0};
    std::stable_sort(live().sets, live().sets + live().set_count,
                     [](const Set& a, const Set& b) { return a.at_ns < b.at_ns; });
    chain_sets(live());
  }
  void load(Load load) {
    live().loads[live().load_count++] = load;
    chain_loads(live());
  }
  Live& live() { return mapping_.writable_state().slots[0]; }
  Scene at(std::int64_t now_ns) { return {mapping_.writable_state(), true, live(), now_ns}; }

 private:
  TestSim sim_;
  Mapping mapping_;
};

Load load_from_to(unsigned gpu, std::int64_t start, std::int64_t end, double util, std::uint64_t memory) {
  Load load = load_on(gpu, util, memory);
  load.start_ns = start;
  load.end_ns = end;
  return load;
}

TEST(Evaluate, AnUntouchedCardIdles) {
  History history(plan_of({"H100"}));
  const Scene scene = history.at(10 * kSecond);
  EXPECT_EQ(value(scene, 0, Metric::util, scene.now_ns), 0);
  EXPECT_EQ(value(scene, 0, Metric::power, scene.now_ns), 70);
  EXPECT_EQ(value(scene, 0, Metric::throttle, scene.now_ns), static_cast<double>(nvml::kReasonGpuIdle));
  EXPECT_EQ(value(scene, 0, Metric::fan, scene.now_ns), kUnsupported);
}

TEST(Evaluate, AContextCostsPowerAndWorkMore) {
  History history(plan_of({"H100"}));
  history.load(load_from_to(0, 0, kForever, 0, 1ULL << 30));
  EXPECT_EQ(value(history.at(kSecond), 0, Metric::power, kSecond), 120);
  history.load(load_from_to(0, 0, kForever, 50, 1ULL << 30));
  const Scene scene = history.at(kSecond);
  EXPECT_EQ(value(scene, 0, Metric::util, kSecond), 50);
  EXPECT_EQ(value(scene, 0, Metric::power, kSecond), 120 + 580 * 0.5);
  EXPECT_EQ(value(scene, 0, Metric::mem_used, kSecond), 2.0 * (1ULL << 30));
  EXPECT_EQ(value(scene, 0, Metric::pstate, kSecond), 0);
}

TEST(Evaluate, LoadsAddUpToAHundredAndNoMore) {
  History history(plan_of({"T4"}));
  history.load(load_from_to(0, 0, kForever, 80, 0));
  history.load(load_from_to(0, kSecond, 2 * kSecond, 80, 0));
  const Scene scene = history.at(3 * kSecond);
  EXPECT_EQ(value(scene, 0, Metric::util, kSecond), 100);
  EXPECT_NEAR(integral(scene, 0, Metric::util, 0, 3 * kSecond), 80 + 100 + 80, 1e-9);
}

TEST(Evaluate, WhatWasSetWinsFromThenOn) {
  History history(plan_of({"T4"}));
  history.load(load_from_to(0, 0, kForever, 80, 0));
  history.set(0, Metric::util, kSecond, 10);
  history.set(0, Metric::util, 2 * kSecond, kDerive);
  const Scene scene = history.at(3 * kSecond);
  EXPECT_EQ(value(scene, 0, Metric::util, kSecond - 1), 80);
  EXPECT_EQ(value(scene, 0, Metric::util, kSecond), 10);
  EXPECT_EQ(value(scene, 0, Metric::util, 2 * kSecond), 80);
  EXPECT_NEAR(integral(scene, 0, Metric::util, 0, 3 * kSecond), 170, 1e-9);
}

TEST(Evaluate, TheRateOfTheMomentDoesNotReachBackOverAChangeByHand) {
  History history(plan_of({"T4"}));
  history.set(0, Metric::util, kSecond, 60);
  const std::int64_t soon = kSecond + 5 * kMs;
  EXPECT_NEAR(recent_mean(history.at(soon), 0, Metric::util, soon), 60, 1e-9);
  Plan plan = plan_of({"T4"});
  plan.gpus[0].keyframes[0] = {{.at_ns = 0, .value = 0}, {.at_ns = kSecond, .value = 60}};
  History scripted(plan);
  // A timeline is the card's own doing: half the window shows half of it.
  const std::int64_t half = kSecond + kSamplePeriodNs / 2;
  EXPECT_NEAR(recent_mean(scripted.at(half), 0, Metric::util, half), 30, 1e-3);
}

TEST(Evaluate, AFastScenarioGivesItsPowerInRealSeconds) {
  Plan plan = plan_of({"T4"});
  plan.speed = 60;
  History history(plan);
  history.set(0, Metric::power, 0, 50);
  const auto before = energy_mj(history.at(0), 0, 0);
  EXPECT_EQ(energy_mj(history.at(60 * kSecond), 0, 60 * kSecond) - before, 50'000U);  // one real second
}

TEST(Evaluate, TheBufferOfAnIdleCardIsDry) {
  History history(plan_of({"T4"}));
  BufferedSample samples[256];
  EXPECT_EQ(buffered_samples(history.at(10 * kSecond), 0, Metric::util, 0, samples, 256), 0U);
  history.load(load_from_to(0, 5 * kSecond, kForever, 0, 0));  // held, not working: samples of 0
  EXPECT_NEAR(buffered_samples(history.at(10 * kSecond), 0, Metric::util, 0, samples, 256), 36, 1);
  EXPECT_EQ(samples[3].value, 0U);
}

TEST(Evaluate, TheBufferIsBounded) {
  History history(plan_of({"T4"}));
  history.set(0, Metric::util, 0, 42);
  BufferedSample samples[256];
  EXPECT_EQ(buffered_samples(history.at(1000 * kSecond), 0, Metric::util, 0, samples, 256), 72U);
  EXPECT_EQ(samples[0].value, 42U);
  EXPECT_EQ(samples[71].value, 42U);
  // Only what is newer than the one seen last.
  EXPECT_EQ(buffered_samples(history.at(1000 * kSecond), 0, Metric::util, samples[68].end_boot_ns, samples, 256), 3U);
}

TEST(Evaluate, ABurstBetweenTwoLooksIsInTheBuffer) {
  History history(plan_of({"T4"}));
  history.set(0, Metric::util, 2 * kSecond, 100);
  history.set(0, Metric::util, 2 * kSecond + 50 * kMs, 0);
  const Scene scene = history.at(10 * kSecond);
  EXPECT_EQ(recent_mean(scene, 0, Metric::util, scene.now_ns), 0);
  BufferedSample samples[256];
  const unsigned count = buffered_samples(scene, 0, Metric::util, 0, samples, 256);
  double sum = 0;
  for (unsigned i = 0; i < count; ++i) sum += samples[i].value;
  EXPECT_NEAR(sum * 10 / 72, 100 * 0.05, 0.2);  // percent x seconds
}

// ---- properties ------------------------------------------------------------------------------------

std::vector<Keyframe> any_timeline(int top) {
  std::vector<Keyframe> frames;
  std::int64_t at = 0;
  const int count = *rc::gen::inRange(0, 6);
  for (int i = 0; i < count; ++i) {
    const bool gap = *rc::gen::inRange(0, 8) == 0;
    frames.push_back({.at_ns = at,
                      .value = gap ? kDerive : static_cast<double>(*rc::gen::inRange(0, top)),
                      .ramp = *rc::gen::element(0U, 1U)});
    at += *rc::gen::inRange(1, 1500) * 2 * kMs;
  }
  return frames;
}

void any_history(History& history) {
  for (int i = *rc::gen::inRange(0, 4); i > 0; --i) {
    const std::int64_t start = *rc::gen::inRange(0, 1500) * 2 * kMs;
    Load load = load_from_to(0, start, start + *rc::gen::inRange(1, 1000) * 2 * kMs, *rc::gen::inRange(0, 90), 1 << 20);
    load.step_count = static_cast<std::uint32_t>(*rc::gen::inRange(1, 4));
    for (unsigned k = 1; k < load.step_count; ++k)
      load.steps[k] = {load.steps[k - 1].at_ns + *rc::gen::inRange(1, 300) * 2 * kMs,
                       static_cast<double>(*rc::gen::inRange(0, 90)), kDerive, 0};
    history.load(load);
  }
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {
    const Metric metric =
        *rc::gen::element(Metric::util, Metric::power, Metric::mem_util, Metric::sm, Metric::power_limit);
    const double top = metric == Metric::power || metric == Metric::power_limit ? 300 : 100;
    const double value = *rc::gen::inRange(0, 4) == 0 ? kDerive : 30 + *rc::gen::inRange(0, 70) * top / 100;
    history.set(0, metric, *rc::gen::inRange(0, 1500) * 2 * kMs, value);
  }
}

Plan any_plan() {
  Plan plan = plan_of({"RTX 3090"});
  plan.gpus[0].keyframes[static_cast<unsigned>(Metric::util)] = any_timeline(101);
  plan.gpus[0].keyframes[static_cast<unsigned>(Metric::power)] = any_timeline(350);
  if (*rc::gen::arbitrary<bool>()) plan.gpus[0].keyframes[static_cast<unsigned>(Metric::mem_util)] = any_timeline(101);
  return plan;
}

// Whatever was scripted, set and loaded: the integral is what the values add up to.
TEST(EvaluateProperty, IntegralsAreWhatTheValuesAddUpTo) {
  EXPECT_TRUE(rc::check([] {
    History history(any_plan());
    any_history(history);
    const std::int64_t from = *rc::gen::inRange(0, 500) * 2 * kMs;
    const std::int64_t to = from + *rc::gen::inRange(1, 1200) * 2 * kMs;
    const Scene scene = history.at(to);
    const Metric metric = *rc::gen::element(Metric::util, Metric::mem_util, Metric::power, Metric::sm, Metric::dram);
    double slow = 0;
    for (std::int64_t at = from; at < to; at += 2 * kMs) slow += value(scene, 0, metric, at + kMs) * 2e-3;
    const double fast = integral(scene, 0, metric, from, to);
    RC_LOG() << kMetricNames[static_cast<unsigned>(metric)] << " fast " << fast << " slow " << slow << '\n';
    RC_ASSERT(slow >= 0);
    RC_ASSERT(std::abs(fast - slow) <= 1e-6 + 3e-3 * slow);
  }));
}

// The buffer's samples, each taken for its period, are the timeline's integral to a percent of one period.
TEST(EvaluateProperty, SamplesAddUpToTheTimeline) {
  EXPECT_TRUE(rc::check([] {
    History history(any_plan());
    any_history(history);
    const std::int64_t now = *rc::gen::inRange(1000, 9000) * kMs;
    const Scene scene = history.at(now);
    BufferedSample samples[256];
    const unsigned count = buffered_samples(scene, 0, Metric::util, 0, samples, 256);
    double sum = 0;
    for (unsigned i = 0; i < count; ++i) {
      RC_ASSERT(samples[i].value <= 100U);
      RC_ASSERT(samples[i].end_boot_ns <= boot_time(scene.state, now));
      sum += samples[i].value * static_cast<double>(scene.state.sample_period_ns) * 1e-9;
    }
    const std::int64_t covered = now / scene.state.sample_period_ns * scene.state.sample_period_ns;
    RC_ASSERT(std::abs(sum - integral(scene, 0, Metric::util, 0, covered)) <= 0.2);
  }));
}

// The energy counter is the integral of power, never goes back, and forgets nothing when sums are settled.
TEST(EvaluateProperty, EnergyIsTheIntegralOfPower) {
  EXPECT_TRUE(rc::check([] {
    History history(any_plan());
    any_history(history);
    const std::int64_t settled = *rc::gen::inRange(0, 4000) * kMs;
    const std::int64_t later = settled + *rc::gen::inRange(0, 4000) * kMs;
    const Scene scene = history.at(later);
    const auto at_start = energy_mj(scene, 0, 0);
    const auto whole_way = energy_mj(scene, 0, later);
    RC_ASSERT(whole_way >= energy_mj(scene, 0, settled));
    RC_ASSERT(std::abs(static_cast<double>(whole_way - at_start) - 1e3 * integral(scene, 0, Metric::power, 0, later)) <=
              2);
    const Ledger ledger = ledger_at(scene, 0, settled);
    history.live().ledger[0] = ledger;
    const auto by_ledger = energy_mj(scene, 0, later);
    RC_ASSERT(by_ledger + 1 >= whole_way);
    RC_ASSERT(whole_way + 1 >= by_ledger);
    RC_ASSERT(energy_mj(scene, 0, 0) <= at_start + 1);  // asked about the time before the sums were settled
  }));
}

// ---- faults ------------------------------------------------------------------------------------------

TEST(Faults, WindowFunctionAndGpu) {
  History history(plan_of({"T4", "T4"}));
  Live& live = history.live();
  live.faults[live.fault_count++] = {.gpu = 1, .code = 15, .from_ns = kSecond, .to_ns = 2 * kSecond};
  live.faults[live.fault_count++] = {.gpu = kEveryGpu, .code = 999, .function = "nvmlDeviceGetPowerUsage"};
  live.faults[live.fault_count++] = {.gpu = 0, .kind = FaultKind::no_util};
  const auto code = [&](std::int32_t gpu, const char* function, bool util, std::int64_t at) {
    return trouble(live, gpu, function, util, at).code;
  };
  EXPECT_EQ(code(1, "nvmlDeviceGetName", false, kSecond - 1), 0);
  EXPECT_EQ(code(1, "nvmlDeviceGetName", false, kSecond), 15);
  EXPECT_EQ(code(1, "nvmlDeviceGetName", false, 2 * kSecond), 0);
  EXPECT_EQ(code(0, "nvmlDeviceGetName", false, kSecond), 0);
  EXPECT_EQ(code(0, "nvmlDeviceGetPowerUsage", false, 0), 999);
  EXPECT_EQ(code(0, "nvmlDeviceGetPowerUsageX", false, 0), 0);
  EXPECT_EQ(code(0, "nvmlDeviceGetUtilizationRates", true, 0), 3);
  EXPECT_EQ(code(1, "nvmlDeviceGetUtilizationRates", true, 0), 0);
  EXPECT_EQ(code(kWholeDriver, "nvmlSystemGetDriverVersion", false, kSecond), 0);
}

TEST(Faults, ALostDriverIsCountedOnce) {
  History history(plan_of({"T4"}));
  Live& live = history.live();
  live.faults[live.fault_count++] = {.gpu = kWholeDriver, .code = 9, .from_ns = kSecond, .to_ns = 2 * kSecond};
  EXPECT_EQ(driver_epoch(live, 0), 0U);
  EXPECT_EQ(driver_epoch(live, kSecond), 1U);
  EXPECT_EQ(driver_epoch(live, 5 * kSecond), 1U);
}

}  // namespace
}  // namespace lull::sim
