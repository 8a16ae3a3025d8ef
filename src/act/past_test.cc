
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "act/picture.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

class PastTest : public ::testing::Test {
 protected:
  PastTest() {
    auto inventory = std::make_shared<Inventory>();
    inventory->devices.resize(2);
    inventory->devices[0].uuid = "GPU-0";
    inventory->devices[1].uuid = "GPU-1";
    inventory->devices[1].index = 1;
    snapshot_.inventory = inventory;
    snapshot_.at = Instant(1000s);
  }
  void add(double util, double power = kUnknown) {
    snapshot_.at += 1s;
    snapshot_.readings.assign(2, {});
    snapshot_.readings[0].set(Metric::util, util);
    if (!std::isnan(power)) snapshot_.readings[0].set(Metric::power, power);
    if (!std::isnan(power)) snapshot_.readings[0].set(Metric::power_limit, 700);
    past_.add(snapshot_);
  }
  std::vector<Past::Cell> cells(Duration window) const {
    return past_.cells(DeviceId("GPU-0"), Metric::util, snapshot_.at - window, snapshot_.at);
  }
  FiringFacts facts(Duration window) const {
    FiringFacts facts;
    facts.snapshot = snapshot_;
    facts.scope = snapshot_.inventory->devices;
    facts.why.rule = "util < 1";
    facts.why.window = window;
    return facts;
  }

  Past past_;
  Snapshot snapshot_;
};

TEST_F(PastTest, AWindowOfAnyLengthIsCoveredFinely) {
  for (int i = 1; i <= 100'000; ++i) add(i % 100);
  for (const Duration window : {Duration(10s), Duration(100s), Duration(3600s), Duration(90'000s)}) {
    const auto found = cells(window);
    ASSERT_FALSE(found.empty());
    EXPECT_GE(found.size(), std::min<std::size_t>(static_cast<std::size_t>(window / 1s), 60));
    EXPECT_LE(found.size(), 1000U);
    EXPECT_EQ(found.front().from, snapshot_.at - window);
    EXPECT_EQ(found.back().to, snapshot_.at);
    for (std::size_t i = 1; i < found.size(); ++i) {
      EXPECT_EQ(found[i].from, found[i - 1].to);
      EXPECT_LE(found[i].to - found[i].from, std::max<Duration>(1s, window / 30));
    }
  }
}

TEST_F(PastTest, PeaksStayAndWhatIsUnknownIsNotHidden) {
  for (int i = 0; i < 1000; ++i) add(i == 500 ? 90 : 2);
  for (int i = 0; i < 1000; ++i) add(i == 500 ? kUnknown : 0);
  int peaks = 0;
  int unknown = 0;
  for (const Past::Cell& cell : cells(2000s)) {
    peaks += cell.high == 90 && cell.low == 2 ? 1 : 0;
    unknown += std::isnan(cell.high) && std::isnan(cell.low) ? 1 : 0;
  }
  EXPECT_EQ(peaks, 1);
  EXPECT_EQ(unknown, 1);
}

TEST_F(PastTest, AGpuThatComesLaterWasUnknownBefore) {
  snapshot_.at += 1s;
  Snapshot first = snapshot_;
  auto one = std::make_shared<Inventory>();
  one->devices = {snapshot_.inventory->devices[1]};
  first.inventory = one;
  first.readings.resize(1);
  past_.add(first);
  add(5);
  const auto found = cells(10s);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(std::isnan(found[0].high));
  EXPECT_EQ(found[1].high, 5);
  EXPECT_TRUE(past_.cells(DeviceId("GPU-7"), Metric::util, Instant(), snapshot_.at).empty());
}

TEST_F(PastTest, ThePictureHasUtilisationAndPowerOfTheWindow) {
  for (int i = 0; i < 100; ++i) add(i < 90 ? 100 : 0, i < 90 ? 600 : 70);
  const std::string svg = picture_of(facts(10s), "box", past_);
  for (const char* part :
       {">GPU 0<", ">util<", ">power<", ">70 W<", "util 100 %", "power 700 W", "util, power (util &lt; 1)"})
    EXPECT_NE(svg.find(part), std::string::npos) << part << " in " << svg;
  EXPECT_EQ(svg.find(">GPU 1<"), std::string::npos) << "nothing is known of it";
  EXPECT_EQ(std::ranges::count(svg, 'Z'), 20) << "ten seconds of two signals";
  EXPECT_EQ(svg.find(">effort<"), std::string::npos) << "it is not known";
}

TEST_F(PastTest, ASignalThatIsNotKnownHasNoRow) {
  for (int i = 0; i < 10; ++i) add(i == 5 ? kUnknown : 0);
  const std::string svg = picture_of(facts(10s), "box", past_);
  EXPECT_EQ(svg.find("power"), std::string::npos);
  EXPECT_EQ(std::ranges::count(svg, 'Z'), 9) << "a gap";
}

TEST_F(PastTest, WithoutRecordsThePictureIsOfWhatTheRuleFiredOn) {
  FiringFacts all = facts(10s);
  EXPECT_EQ(picture_of(all, "box", past_), "");
  all.why.stories = {{.gpu = "0", .metric = Metric::util, .trace = {0, 0, 1, 0}}};
  EXPECT_NE(picture_of(all, "box", past_).find(">GPU 0<"), std::string::npos);
}

}  // namespace
}  // namespace lull
