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

}  // namespace
}  // namespace lull
