#include <gtest/gtest.h>

#include <cmath>

#include "sense/card_tree_test.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

// An Arc B580 with two GTs, as xe has it.
class XeCard {
 public:
  XeCard() {
    idle(0, 500'000);
    idle(1, 599'999);
    cards.tree.write(hwmon + "/name", "xe\n");
    cards.write(hwmon, "energy1_input", energy);
    cards.write(hwmon, "power1_max", 0);
    cards.write(hwmon, "power1_crit", 190'000'000);
    cards.write(hwmon, "temp2_input", 38'000);
    cards.write(device, "device", 0, "0xe20b");
  }
  void idle(unsigned gt, std::int64_t ms) {
    cards.write(device + "/tile0/gt" + std::to_string(gt) + "/gtidle", "idle_residency_ms", idle_ms[gt] = ms);
  }
  // So long, with the GTs busy for so many percent and at so many watts.
  const Reading& run(Duration time, double render, double media, double watts = 40) {
    const auto ms = static_cast<double>(time / 1ms);
    idle(0, idle_ms[0] + static_cast<std::int64_t>(ms * (100 - render) / 100));
    idle(1, idle_ms[1] + static_cast<std::int64_t>(ms * (100 - media) / 100));
    cards.write(hwmon, "energy1_input", energy += static_cast<std::int64_t>(watts * ms * 1000));
    return gpus.sample(time);
  }
  CardTree cards;
  std::string device = cards.add_card(1, 129, "0000:04:00.0", "0x8086", "xe");
  std::string hwmon = device + "/hwmon/hwmon1";
  std::int64_t idle_ms[2] = {0, 0};
  std::int64_t energy = 987'654'321'000;
  SampledCards gpus{cards, make_intel_source};
};

TEST(IntelGpus, UtilIsWhatIsLeftOfTheBusiestGtsIdleTime) {
  XeCard xe;
  EXPECT_EQ(xe.gpus.sample().why_missing(Metric::util), Absence::no_baseline);
  EXPECT_EQ(xe.gpus.device().pci, "00000000:04:00.0");
  EXPECT_EQ(xe.gpus.device().vendor, Vendor::intel);
  EXPECT_TRUE(xe.gpus.device().idle_looks_hung) << "what keeps a GT awake reads as work, at the power of rest";
  const Reading& reading = xe.run(5s, 10, 60);
  EXPECT_NEAR(reading[Metric::util], 60, 0.1);
  EXPECT_GE(reading[Metric::util], 60) << "it errs towards work";
  EXPECT_EQ(reading.util_basis, Basis::mean);
  EXPECT_EQ(reading.util_coverage, 1);
  EXPECT_LT(xe.run(5s, 0, 0)[Metric::util], 0.1);
  EXPECT_EQ(xe.gpus.source->look_within(0), 0s) << "a look would keep the card awake";
}

TEST(IntelGpus, ACounterThatWrapsIsNoLeap) {
  XeCard xe;
  xe.idle(0, 5'497'000);
  xe.idle(1, 5'497'000);
  xe.gpus.sample();
  xe.idle(0, 4'000 - 558);  // 4 of the 5 s, over 2^32 x 1.28 us
  xe.idle(1, 4'000 - 558);
  EXPECT_NEAR(xe.gpus.sample(5s)[Metric::util], 20, 0.2);
}

TEST(IntelGpus, ACounterBelowZeroIsNoneThatWrapped) {
  XeCard xe;
  xe.idle(0, 5'497'000);
  xe.idle(1, 5'497'000);
  xe.gpus.sample();
  xe.run(100ms, 0, 0);
  xe.idle(0, -1);  // it would be 457 ms from the wrap
  xe.idle(1, -1);
  EXPECT_EQ(xe.gpus.sample(460ms).why_missing(Metric::util), Absence::implausible);
}

TEST(IntelGpus, ACounterThatNeverMovesIsUnknownAndOneThatMovedBeforeIsABusyCard) {
  XeCard xe;
  xe.gpus.sample();
  EXPECT_EQ(xe.run(5s, 100, 100).why_missing(Metric::util), Absence::still);
  EXPECT_EQ(xe.run(5s, 100, 50).why_missing(Metric::util), Absence::still) << "one of them does not count";
  EXPECT_NEAR(xe.run(5s, 50, 50)[Metric::util], 50, 0.2);
  EXPECT_EQ(xe.run(5s, 100, 100)[Metric::util], 100);
}

TEST(IntelGpus, MoreIdleTimeThanThereWasIsNonsense) {
  XeCard xe;
  xe.gpus.sample();
  xe.run(5s, 50, 50);
  xe.idle(0, xe.idle_ms[0] + 60'000);
  EXPECT_EQ(xe.run(5s, 0, 0).why_missing(Metric::util), Absence::implausible);
  EXPECT_LT(xe.run(5s, 0, 0)[Metric::util], 0.1) << "the next mean begins after it";
}

TEST(IntelGpus, OneGtThatCannotBeReadMakesTheBusiestUnknown) {
  XeCard xe;
  xe.gpus.sample();
  xe.run(5s, 0, 0);
  xe.cards.tree.write(xe.device + "/tile0/gt1/gtidle/idle_residency_ms", "");
  EXPECT_EQ(xe.gpus.sample(5s).why_missing(Metric::util), Absence::implausible);
  EXPECT_EQ(xe.run(5s, 0, 0).why_missing(Metric::util), Absence::no_baseline);
  EXPECT_LT(xe.run(5s, 0, 0)[Metric::util], 0.1);
}

TEST(IntelGpus, AGtThatIsGoneIsUnknownAndOneThatCameCounts) {
  XeCard xe;
  xe.gpus.sample();
  xe.run(11s, 0, 0);
  xe.cards.remove(xe.device + "/tile0/gt1");
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(xe.gpus.sample(11s).why_missing(Metric::util), Absence::not_supported) << "it may be at work";
  XeCard other;
  other.gpus.sample();
  other.run(5s, 0, 0);
  other.cards.write(other.device + "/tile1/gt2/gtidle", "idle_residency_ms", 1000);
  other.run(11s, 0, 0);
  other.run(5s, 0, 0);
  EXPECT_TRUE(std::isnan(other.run(5s, 0, 0)[Metric::util])) << "it was never idle";
}

TEST(IntelGpus, TheNewestDataAreOfTheLastSecondWhereSomebodyAskedThen) {
  XeCard xe;
  xe.gpus.sample();
  xe.run(30s, 0, 0);
  EXPECT_GE(xe.gpus.answer.gpu.newest_span, 30s) << "nobody looked since";
  EXPECT_EQ(xe.gpus.answer.gpu.newest_period, 1s) << "but soon somebody can";
  xe.run(1s, 0, 0);
  const Reading& reading = xe.run(1s, 30, 0);
  EXPECT_NEAR(reading.util_newest.high, 30, 0.5);
  EXPECT_NEAR(to_seconds(reading.newest_span), 1, 0.01);
  EXPECT_NEAR(xe.run(300ms, 0, 0).util_newest.high, 23, 1) << "of a time that is long enough to be measured";
}

TEST(IntelGpus, PowerIsTheCountersAndUnknownIfItStopsLeapsOrRunsBackwards) {
  XeCard xe;
  EXPECT_EQ(xe.gpus.sample().why_missing(Metric::power), Absence::no_baseline)
      << "there is no power but by two samples";
  const Reading& reading = xe.run(5s, 0, 0, 37);
  EXPECT_NEAR(reading[Metric::power], 37, 0.1);
  EXPECT_EQ(reading.power_basis, Basis::mean);
  EXPECT_DOUBLE_EQ(reading[Metric::power_limit], 190) << "a limit of 0 is none";
  EXPECT_DOUBLE_EQ(reading[Metric::temp], 38);
  EXPECT_EQ(xe.run(5s, 0, 0, 0).why_missing(Metric::power), Absence::still);
  EXPECT_NEAR(xe.run(5s, 0, 0, 150)[Metric::power], 150, 0.1) << "and not the mean with the time it stood still";
  EXPECT_EQ(xe.run(5s, 0, 0, 4e6).why_missing(Metric::power), Absence::implausible);
  EXPECT_EQ(xe.run(5s, 0, 0, -30).why_missing(Metric::power), Absence::implausible);
}

TEST(IntelGpus, ACounterThatMayHaveBegunAgainInBetweenIsUnknown) {
  XeCard xe;
  xe.energy = 300'000'000;
  xe.cards.write(xe.hwmon, "energy1_input", xe.energy);
  xe.gpus.sample();
  xe.energy = 0;  // then 180 W for 5 s, which would look like 120 W
  EXPECT_EQ(xe.run(5s, 90, 90, 180).why_missing(Metric::power), Absence::no_baseline);
  for (int i = 0; i < 4; ++i) xe.run(5s, 90, 90, 180);
  EXPECT_NEAR(xe.run(5s, 90, 90, 180)[Metric::power], 180, 1) << "more than it can draw in the time";
}

TEST(IntelGpus, MemoryIsUnknownWithoutTheCapability) {
  CardTree cards;
  const std::string device = cards.add_card(0, 128, "0000:03:00.0", "0x8086", "i915");
  cards.write(device + "/drm/card0", "lmem_total_bytes", 17079205888);
  cards.write(device + "/drm/card0", "lmem_avail_bytes", 17079205888);
  cards.tree.write("proc/self/status", "CapEff:\t0000000000000000\n");
  SampledCards gpus(cards, make_intel_source);
  EXPECT_EQ(gpus.sample().why_missing(Metric::mem_used), Absence::no_permission) << "i915 says that all is free";
  EXPECT_EQ(gpus.answer.gpu[Metric::mem_total], 17079205888);
  cards.tree.write("proc/self/status", "CapEff:\t0000004000000000\n");
  cards.write(device + "/drm/card0", "lmem_avail_bytes", 17079205888 - (1 << 30));
  EXPECT_EQ(gpus.sample(1s)[Metric::mem_used], 1 << 30);
}

TEST(IntelGpus, AnIntegratedOneIsToldByItsPlaceAndHasNoMemoryOfItsOwn) {
  const auto integrated = [](const std::string& address, bool memory) {
    CardTree cards;
    const std::string device = cards.add_card(0, 128, address, "0x8086", "i915");
    if (memory) cards.write(device + "/drm/card0", "lmem_total_bytes", 17079205888);
    SampledCards gpus(cards, make_intel_source);
    gpus.sample();
    return gpus.device().integrated;
  };
  EXPECT_TRUE(integrated("0000:00:02.0", false));
  EXPECT_FALSE(integrated("0000:00:02.0", true)) << "passed into a virtual machine";
  EXPECT_FALSE(integrated("0000:03:00.0", false));
}

TEST(IntelGpus, I915HasItsCountersBelowTheCard) {
  CardTree cards;
  const std::string device = cards.add_card(0, 128, "0000:03:00.0", "0x8086", "i915");
  const std::string card = device + "/drm/card0";
  cards.write(card, "power/rc6_residency_ms", 1000);
  SampledCards old(cards, make_intel_source);
  old.sample();
  cards.write(card, "power/rc6_residency_ms", 5000);
  EXPECT_NEAR(old.sample(5s)[Metric::util], 20, 0.1) << "as before there were several GTs";
  cards.write(card, "gt/gt0/rc6_residency_ms", 812345);
  cards.write(card, "gt/gt0/rps_act_freq_mhz", 300);
  SampledCards gpus(cards, make_intel_source);
  gpus.sample();
  cards.write(card, "gt/gt0/rc6_residency_ms", 814845);
  EXPECT_NEAR(gpus.sample(5s)[Metric::util], 50, 0.1);
  EXPECT_EQ(gpus.answer.gpu[Metric::clock], 300);
}

TEST(IntelGpus, WhoLooksOnceGetsAValue) {
  XeCard xe;
  xe.gpus.needs.once = true;
  // The time of the test does not move while it waits: there is none to be a mean of.
  EXPECT_EQ(xe.gpus.sample().why_missing(Metric::util), Absence::no_baseline);
  const SystemClock clock;
  const auto source = make_intel_source(xe.cards.root(), clock);
  (void)source->open();
  (void)source->attach(0, clock.now());
  Answer answer;
  source->sample(0, xe.gpus.needs, clock.now(), answer);
  EXPECT_EQ(answer.gpu.why_missing(Metric::util), Absence::still);
}

}  // namespace
}  // namespace lull
