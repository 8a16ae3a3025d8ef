// What each process did, by the driver's samples: what may be taken for nothing, and what may not.
#include "sense/nvml/share_meter.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lull {
namespace {

using namespace std::chrono_literals;
using nvml::Return;
using Entries = std::vector<nvml::ProcessUtilization>;

class ShareMeterTest : public testing::Test {
 protected:
  // A stamp so long before now, by the clock since boot.
  unsigned long long ago(Duration age) const {
    return static_cast<unsigned long long>(
        std::chrono::duration_cast<std::chrono::microseconds>((now_ - age).time_since_epoch()).count());
  }
  nvml::ProcessUtilization entry(unsigned pid, unsigned sm, Duration age = 100ms) const {
    return {pid, ago(age), sm, 0, 0, 0};
  }
  void look(const Entries& entries, Return code = Return::success) {
    const auto boot = std::chrono::duration_cast<std::chrono::microseconds>(now_.time_since_epoch()).count();
    meter_.look(now_, entries.empty() && code == Return::success ? Return::not_found : code, entries,
                {boot, boot - 1'000'000'000, boot + 1'700'000'000'000'000});
  }
  // Five seconds later, on a GPU that was busy for so much of them.
  Reading sample(const Entries& entries, double util, Return code = Return::success) {
    look(entries, code);
    Reading reading;
    if (!std::isnan(util)) reading.set(Metric::util, util);
    meter_.take(now_, reading);
    now_ += 5s;
    return reading;
  }
  static double share_of(const Reading& reading, pid_t pid) {
    for (const ProcessShare& one : reading.shares)
      if (one.pid == pid) return one.percent;
    return 0;
  }

  ShareMeter meter_;
  Instant now_{100h};
};

TEST_F(ShareMeterTest, TheFirstSampleHasNothingToCompareWith) {
  EXPECT_EQ(sample({entry(10, 50)}, 50).shares_absence, Absence::no_baseline);
  const Reading second = sample({entry(10, 50)}, 50);
  EXPECT_EQ(second.shares_absence, Absence::none);
  EXPECT_EQ(share_of(second, 10), 50);
}

TEST_F(ShareMeterTest, NotFoundIsNothingOnlyOnAGpuThatDidNothing) {
  sample({}, 0);
  EXPECT_EQ(sample({}, 0).shares_absence, Absence::none);
  EXPECT_EQ(sample({}, 0.5).shares_absence, Absence::not_covered) << "somebody worked, and the driver names nobody";
  EXPECT_EQ(sample({}, kUnknown).shares_absence, Absence::not_covered);
}

TEST_F(ShareMeterTest, WhoIsNotListedDidNothingOnceTheDriverIsShownToSample) {
  sample({entry(10, 90)}, 90);
  const Reading reading = sample({entry(10, 90)}, 90);
  EXPECT_EQ(reading.shares_absence, Absence::none);
  EXPECT_EQ(share_of(reading, 11), 0);
  EXPECT_EQ(reading.shares_span, 5100ms) << "since the newest that was known before";
  EXPECT_EQ(reading.unlisted_util, 0);
}

TEST_F(ShareMeterTest, OldAndFutureStampsShowNothing) {
  sample({entry(10, 90)}, 90);
  EXPECT_EQ(sample({entry(10, 90, 1h)}, 90).shares_absence, Absence::not_covered);
  EXPECT_EQ(sample({entry(10, 90, -1h)}, 90).shares_absence, Absence::not_covered);
  EXPECT_EQ(share_of(sample({entry(10, 90)}, 90), 10), 90) << "and do not blind it";
  const nvml::ProcessUtilization seen = entry(10, 90);
  sample({seen}, 90);
  EXPECT_EQ(sample({seen}, 90).shares_absence, Absence::not_covered) << "the same sample is no new one";
}

TEST_F(ShareMeterTest, AValueAboveAHundredIsUnknownAndNotNothing) {
  sample({entry(10, 90)}, 90);
  const Reading reading = sample({entry(10, 37100), entry(11, 20)}, 90);
  EXPECT_EQ(reading.shares_absence, Absence::none);
  EXPECT_TRUE(std::isnan(share_of(reading, 10)));
  EXPECT_EQ(share_of(reading, 11), 20);
}

TEST_F(ShareMeterTest, TellsWhatOfUtilIsNobodys) {
  sample({entry(10, 40)}, 40);
  EXPECT_EQ(sample({entry(10, 40)}, 90).unlisted_util, 50);
  EXPECT_TRUE(std::isnan(sample({entry(10, 40)}, kUnknown).unlisted_util));
  nvml::ProcessUtilization encodes = entry(10, 0);
  encodes.encoder = 90;
  EXPECT_EQ(sample({encodes}, 60).unlisted_util, 60) << "encoders are no part of util";
  EXPECT_EQ(sample({entry(10, 37100)}, 60).unlisted_util, 60) << "nor is nonsense";
}

TEST_F(ShareMeterTest, TimeThatNobodyIsListedForAddsNothing) {
  sample({entry(10, 90)}, 90);
  now_ -= 4s;
  look({entry(10, 90)});  // a second later; then the driver says nothing for four
  now_ += 4s;
  const Reading reading = sample({}, 80);
  EXPECT_NEAR(share_of(reading, 10), 18, 0.1);
  EXPECT_NEAR(reading.unlisted_util, 62, 0.1);
}

TEST_F(ShareMeterTest, NothingIsProvenWhileTheNewestDataShowWork) {
  sample({}, 0);
  look({});
  Reading reading;
  reading.set(Metric::util, 0);
  reading.util_newest.add(30);
  meter_.take(now_, reading);
  EXPECT_EQ(reading.shares_absence, Absence::not_covered);
}

// A confirmation wants data that are all newer than a time: a sample of the driver's that began after it.
TEST_F(ShareMeterTest, TheSpanOfSharesBeginsWithASampleThatWasKnown) {
  sample({entry(10, 40)}, 40);
  sample({entry(10, 40, 300ms)}, 40);
  now_ -= 4s;
  EXPECT_EQ(sample({entry(10, 40, 100ms)}, 40).shares_span, 1300ms);
  EXPECT_EQ(sample({}, 0).shares_span, 0ms) << "a GPU that did nothing has its own newest data";
}

TEST_F(ShareMeterTest, EncodersAndCopiesAreWork) {
  sample({entry(10, 1)}, 1);
  nvml::ProcessUtilization one = entry(10, 0);
  one.encoder = 30;
  nvml::ProcessUtilization other = entry(11, 0);
  other.memory = 7;
  const Reading reading = sample({one, other}, 1);
  EXPECT_EQ(share_of(reading, 10), 30);
  EXPECT_EQ(share_of(reading, 11), 7);
}

TEST_F(ShareMeterTest, ARefusalIsToldAndDoesNotLast) {
  sample({entry(10, 90)}, 90);
  EXPECT_EQ(sample({}, 90, Return::no_permission).shares_absence, Absence::no_permission);
  EXPECT_EQ(sample({}, 0, Return::not_supported).shares_absence, Absence::not_supported) << "also while it is idle";
  EXPECT_EQ(sample({entry(10, 90)}, 90).shares_absence, Absence::none);
  look({}, Return::no_permission);  // between two samples: that time was not seen
  now_ += 1s;
  EXPECT_EQ(sample({entry(10, 90)}, 90).shares_absence, Absence::no_permission);
}

TEST_F(ShareMeterTest, LooksBetweenSamplesCountByTheirTime) {
  sample({entry(10, 40)}, 40);
  look({entry(10, 100)});  // of five seconds
  now_ += 5s;
  EXPECT_NEAR(share_of(sample({entry(11, 100)}, 100), 10), 50, 1);
}

TEST_F(ShareMeterTest, BetweenTwoSamplesOfTheDriverTheLastOneStandsForAWhile) {
  sample({entry(10, 90)}, 90);
  sample({entry(10, 90)}, 90);
  now_ -= 5s - 200ms;
  const Reading soon = sample({}, 90);
  EXPECT_EQ(soon.shares_absence, Absence::none);
  EXPECT_EQ(share_of(soon, 10), 90);
  EXPECT_EQ(soon.shares_span, 5300ms) << "and is not of new data, so that it confirms nothing";
  EXPECT_EQ(sample({}, 90).shares_absence, Absence::not_covered);
}

TEST_F(ShareMeterTest, AfterALossItBeginsAnew) {
  sample({entry(10, 90)}, 90);
  meter_.restart();
  EXPECT_EQ(sample({entry(10, 90)}, 90).shares_absence, Absence::no_baseline);
}

TEST_F(ShareMeterTest, StampsMayBeOfTheWallClock) {
  const auto wall = [&](unsigned pid, unsigned sm) {
    nvml::ProcessUtilization one = entry(pid, sm);
    one.timestamp += 1'700'000'000'000'000;
    return one;
  };
  sample({wall(10, 90)}, 90);
  EXPECT_EQ(share_of(sample({wall(10, 90)}, 90), 10), 90);
}

}  // namespace
}  // namespace lull
