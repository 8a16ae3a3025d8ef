#include "replay/report.h"

#include <gtest/gtest.h>

namespace lull::replay {
namespace {

using namespace std::chrono_literals;

TEST(HoursOfGpuTest, TimeIsSpreadOverItsHours) {
  HoursOfGpu gpu;
  gpu.add(Instant(10h + 30min), Instant(12h + 15min), &HourOfUse::busy, 1.0F);
  gpu.add(Instant(12h + 15min), Instant(12h + 30min), &HourOfUse::idle, 1.0F);
  gpu.add(Instant(14h), Instant(14h + 10s), &HourOfUse::free, std::nullopt);
  gpu.finish();
  EXPECT_EQ(gpu.first(), 10);
  ASSERT_EQ(gpu.hours().size(), 5U);
  EXPECT_FLOAT_EQ(gpu.hours()[0].busy, 1800);
  EXPECT_FLOAT_EQ(gpu.hours()[1].busy, 3600);
  EXPECT_FLOAT_EQ(gpu.hours()[2].busy, 900);
  EXPECT_FLOAT_EQ(gpu.hours()[2].idle, 900);
  EXPECT_FLOAT_EQ(gpu.hours()[3].seen(), 0);
  EXPECT_FLOAT_EQ(gpu.hours()[4].free, 10);
  EXPECT_FLOAT_EQ(gpu.holders().at({2, 1.0F}), 1800);
  EXPECT_FALSE(gpu.holders().contains({4, 1.0F}));
}

// The obvious way beside it: second by second.
TEST(HoursOfGpuTest, ManyShortPiecesAreWhatTheyAddUpTo) {
  HoursOfGpu gpu;
  std::vector<float> busy(30);
  std::vector<float> idle(30);
  std::uint32_t dice = 1;
  for (int second = 0; second < 100'000; second += 5) {
    dice = dice * 1664525 + 1013904223;
    const bool works = (dice >> 30) != 0;
    gpu.add(Instant(std::chrono::seconds(second)), Instant(std::chrono::seconds(second + 5)),
            works ? &HourOfUse::busy : &HourOfUse::idle, std::nullopt);
    (works ? busy : idle)[static_cast<std::size_t>(second) / 3600] += 5;
  }
  gpu.finish();
  for (std::size_t i = 0; i < gpu.hours().size(); ++i) {
    EXPECT_FLOAT_EQ(gpu.hours()[i].busy, busy[i]);
    EXPECT_FLOAT_EQ(gpu.hours()[i].idle, idle[i]);
  }
}

TEST(HoursOfGpuTest, ATimeFarAwayTakesNoMemory) {
  HoursOfGpu gpu;
  gpu.add(Instant(1h), Instant(2h), &HourOfUse::busy, std::nullopt);
  gpu.add(Instant(2'000'000h), Instant(2'000'001h), &HourOfUse::busy, std::nullopt);
  gpu.finish();
  EXPECT_EQ(gpu.hours().size(), 1U);
}

TEST(LongestStretchesTest, AreTheLongestOfAll) {
  LongestStretches longest(3);
  for (int i = 0; i < 1000; ++i)
    longest.add({.gpu = 0, .holder = -1, .from = Instant(0s), .to = Instant(std::chrono::seconds(i * 7919 % 1000))});
  const auto found = longest.take();
  ASSERT_EQ(found.size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(found[static_cast<std::size_t>(i)].length(), std::chrono::seconds(999 - i));
}

}  // namespace
}  // namespace lull::replay
