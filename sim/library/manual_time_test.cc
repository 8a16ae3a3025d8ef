// A machine whose time somebody sets: it answers for any instant, and real time means nothing to it.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "sim/library/library_test.h"
#include "sim/mapping.h"

namespace {

using namespace lull::sim;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kStart = 5'000 * kSecond;

Plan by_hand() {
  Plan plan = plan_of({"H100", "T4"});
  plan.manual_boot_ns = kStart;
  GpuPlan& first = plan.gpus[0];
  const auto steps = [&](Metric metric, std::initializer_list<std::pair<std::int64_t, double>> values) {
    for (const auto& [at, value] : values)
      first.keyframes[static_cast<unsigned>(metric)].push_back({.at_ns = at * kSecond, .value = value});
  };
  steps(Metric::util, {{0, 0}, {100, 80}, {200, 0}});
  steps(Metric::power, {{0, 70}, {100, 500}, {200, 70}});
  steps(Metric::mem_used, {{0, 0}, {100, 4e9}});
  Load worker = load_on(0, 0);
  worker.pid = 4711;
  worker.start_ns = 100 * kSecond;
  worker.end_ns = 200 * kSecond;
  plan.processes.push_back(worker);
  plan.cost_ns[static_cast<unsigned>(Cost::fan)] = 3 * kSecond;
  return plan;
}

class ManualTime : public OnSim {
 protected:
  ManualTime() : OnSim(by_hand()) {}
  void at(std::int64_t seconds) { writer_.set_time(kStart + seconds * kSecond); }
  unsigned util() {
    Utilization out{};
    EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", device(0), &out), kSuccess);
    return out.gpu;
  }
  unsigned processes() {
    unsigned count = 0;
    library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device(0), &count, nullptr);
    return count;
  }
  unsigned long long energy() {
    unsigned long long out = 0;
    EXPECT_EQ(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(0), &out), kSuccess);
    return out;
  }

  Writer writer_ = sim_.writer();
};

TEST_F(ManualTime, EveryAnswerIsOfTheInstantThatWasSet) {
  EXPECT_EQ(util(), 0U);
  EXPECT_EQ(processes(), 0U);
  at(150);
  EXPECT_EQ(util(), 80U);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 0), 500'000U);
  EXPECT_EQ(processes(), 1U);
  Memory memory{};
  ASSERT_EQ(library_.call("nvmlDeviceGetMemoryInfo", device(0), &memory), kSuccess);
  EXPECT_GE(memory.used, 4'000'000'000ULL);
  const unsigned long long then = energy();
  at(160);
  EXPECT_EQ(energy() - then, 5'000'000ULL) << "500 W for 10 s, in mJ";
  at(3600);
  EXPECT_EQ(util(), 0U);
  EXPECT_EQ(processes(), 0U);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 0), 70'000U);
}

TEST_F(ManualTime, TheSampleBufferEndsAtTheInstantThatWasSetByItsOwnStamps) {
  at(150);
  std::array<Sample, 240> samples{};
  unsigned type = 0;
  unsigned count = 240;
  ASSERT_EQ(library_.call("nvmlDeviceGetSamples", device(0), 1, 0ULL, &type, &count, samples.data()), kSuccess);
  ASSERT_EQ(count, kSampleCapacity);
  const auto now = static_cast<unsigned long long>(kStart + 150 * kSecond) / 1000;
  EXPECT_LE(samples[count - 1].timestamp, now);
  EXPECT_GT(samples[count - 1].timestamp, now - 200'000);
  EXPECT_EQ(samples[0].value.ui, 80U);
}

TEST_F(ManualTime, WhatHangsOrCostsTimeDoesSoUntilTheTimeWasSetAsMuchFurther) {
  ASSERT_TRUE(writer_.add_faults({{.gpu = 1, .hang_ns = 1000 * kSecond, .from_ns = -1}}));
  const Device working = device(0);
  std::atomic<int> running{2};
  const auto passed = [&](std::int64_t& took, auto call) {
    return std::thread([&, call] {
      const std::int64_t began = boot_now_ns(writer_.state());
      call();
      took = boot_now_ns(writer_.state()) - began;
      --running;
    });
  };
  std::int64_t hung = 0;
  std::int64_t paid = 0;
  std::thread one = passed(hung, [&] {
    Device hanging = nullptr;
    library_.call("nvmlDeviceGetHandleByIndex_v2", 1U, &hanging);
  });
  std::thread other = passed(paid, [&] {
    unsigned percent = 0;
    library_.call("nvmlDeviceGetFanSpeed", working, &percent);
  });
  for (std::int64_t seconds = 1; running > 0; ++seconds) {
    at(seconds);
    std::this_thread::yield();
  }
  one.join();
  other.join();
  EXPECT_GE(hung, 1000 * kSecond);
  EXPECT_GE(paid, 3 * kSecond);
}

}  // namespace
