// What was not covered was not seen: in simulated time, over many machines and rules
// at random. bench/figure_coverage.py prints the same over ten thousand cases.
#include <gtest/gtest.h>

#include "sense/nvml/burst_card_test.h"

namespace lull {
namespace {

TEST(Coverage, NoHealthyCardIsCalledIdle) {
  const burst::Count count = burst::count(500, true, 1);
  EXPECT_EQ(count.wrong, 0U) << count.first;
}

TEST(Coverage, EveryIdleCardIsFound) {
  const burst::Count count = burst::count(500, false, 2);
  EXPECT_EQ(count.wrong, 0U) << count.first;
  EXPECT_LT(count.unknown, 0.05) << "not by looking away";
}

// The limit on coverage by itself: a sensor that gets few turns sees a card without a ring at single moments only.
TEST(Coverage, AStarvedSensorCallsNothingIdle) {
  burst::Dice dice(3);
  unsigned samples = 0;
  unsigned unknown = 0;
  for (int i = 0; i < 300; ++i) {
    burst::Case one = burst::roll(dice, true);
    burst::card.ring = burst::RingKind::none;
    one.every = dice.uniform(8, 20);
    one.starved = dice.uniform(4, 12);
    one.holds = 61;
    const burst::Outcome outcome = burst::run(one, dice);
    EXPECT_FALSE(outcome.idle) << outcome.what;
    samples += outcome.samples;
    unknown += outcome.unknown;
  }
  EXPECT_GT(unknown * 10, samples * 8) << "starved it was";
}

}  // namespace
}  // namespace lull
