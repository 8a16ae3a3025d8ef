#include "session/status_extras.h"

#include <gtest/gtest.h>

#include "gpu/inventory_test.h"
#include "rule/timeline.h"
#include "sense/nvml/meters.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEvery = 1s;

class Idleness : public testing::Test {
 protected:
  // One sample of one GPU, so long after the last; no value: it could not be read.
  StatusExtra see(Duration after, std::optional<double> util, std::optional<Duration> idle_before = {}) {
    now_ += after;
    Snapshot snapshot;
    snapshot.at = now_;
    snapshot.inventory = inventory_;
    Reading reading;
    if (util)
      reading.set(Metric::util, *util);
    else
      reading.miss(Metric::util, Absence::failed);
    reading.idle_before = idle_before;
    snapshot.readings = {reading};
    times_.see(snapshot);
    StatusExtra extra;
    times_.tell(inventory_->devices[0], extra);
    return extra;
  }
  std::shared_ptr<Inventory> inventory_ = gpus_for_test(1);
  IdleTimes times_{kEvery};
  Instant now_{1h};
};

TEST_F(Idleness, IsCountedFromTheFirstSampleThatSawIt) {
  EXPECT_FALSE(see(0s, 90).idle_for);
  EXPECT_FALSE(see(1s, 0).idle_for) << "only the moment";
  const StatusExtra second = see(1s, 0);
  EXPECT_EQ(second.idle_for, 1s);
  EXPECT_FALSE(second.idle_for_longer) << "we saw it become idle";
  EXPECT_EQ(see(1s, 0).idle_for, 2s);
  EXPECT_FALSE(see(1s, 90).idle_for);
}

TEST_F(Idleness, WhatTheDriverSawBeforeCounts) {
  const StatusExtra first = see(0s, 0, 5s);
  EXPECT_EQ(first.idle_for, 5s);
  EXPECT_TRUE(first.idle_for_longer);
  const StatusExtra second = see(1s, 0, 9s);
  EXPECT_EQ(second.idle_for, 6s) << "by now we look ourselves";
  EXPECT_TRUE(second.idle_for_longer);
}

TEST_F(Idleness, BeginsAnewAfterAGapAndMayBeLonger) {
  see(0s, 90);
  see(1s, 0);
  const Duration longest = longest_gap(kEvery);
  const StatusExtra in_time = see(longest, 0);
  EXPECT_EQ(in_time.idle_for, longest);
  EXPECT_FALSE(in_time.idle_for_longer);
  EXPECT_FALSE(see(longest + 1ns, 0).idle_for);
  const StatusExtra after = see(1s, 0);
  EXPECT_EQ(after.idle_for, 1s);
  EXPECT_TRUE(after.idle_for_longer) << "nobody saw what was in the gap";
}

TEST_F(Idleness, AfterAGapNobodySawItBusyUntilThen) {
  see(0s, 90);
  const StatusExtra after = see(1h, 0, 2s);
  EXPECT_EQ(after.idle_for, 2s);
  EXPECT_TRUE(after.idle_for_longer);
}

TEST_F(Idleness, WhatCouldNotBeReadIsNotIdle) {
  see(0s, 90);
  see(1s, 0);
  EXPECT_FALSE(see(1s, std::nullopt).idle_for);
  EXPECT_FALSE(see(1s, 0).idle_for);
  EXPECT_TRUE(see(1s, 0).idle_for_longer) << "it may have been so all the time";
}

TEST_F(Idleness, EndsAtTheSameLimitAsTheDriversOwn) {
  EXPECT_FALSE(see(0s, kIdleBelow, 5s).idle_for);
  see(1s, 0);
  EXPECT_FALSE(see(1s, 0).idle_for_longer) << "it was busy until then";
}

TEST(Histories, KeepTheLastTwenty) {
  const auto inventory = gpus_for_test(2);
  Histories histories;
  for (int i = 0; i < 25; ++i) {
    Snapshot snapshot;
    snapshot.inventory = inventory;
    snapshot.readings.resize(2);
    for (Reading& reading : snapshot.readings) reading.set(Metric::util, i);
    histories.see(snapshot);
  }
  for (const Device& device : inventory->devices) {
    const auto history = histories.of(device);
    ASSERT_EQ(history.size(), 20U);
    EXPECT_EQ(history.front(), 5);
    EXPECT_EQ(history.back(), 24);
  }
  EXPECT_TRUE(histories.of(gpus_for_test(3)->devices[2]).empty());
}

}  // namespace
}  // namespace lull
