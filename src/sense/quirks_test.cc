#include "sense/quirks_test.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

// bench/figure_vendors.py runs 10 000 of them.
TEST(VendorQuirks, NoReadingCallsACardIdleThatWorks) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "QuirkCases(" << seed << ")");
  const QuirkCounts counts = QuirkCases(seed).run(300);
  EXPECT_EQ(counts.false_idle, 0U);
  EXPECT_EQ(counts.false_unused, 0U);
  EXPECT_GT(counts.known_idle, counts.cases / 8) << "it is not that nothing is known";
  EXPECT_GT(counts.known_busy, counts.cases / 8);
  EXPECT_GT(counts.unknown, 0U);
  EXPECT_GT(counts.known_used, counts.cases / 16);
}

TEST(VendorQuirks, AJobOfAFifthThatIsReadAsNothingIsAFalseIdle) {
  EXPECT_TRUE(is_false_idle(0, 20, 20));
  EXPECT_TRUE(is_false_idle(0, 30, 0));
  EXPECT_FALSE(is_false_idle(0, 20, 0)) << "it may have begun just now";
  EXPECT_FALSE(is_false_idle(14, 20, 20));
  EXPECT_FALSE(is_false_idle(std::nan(""), 100, 100)) << "unknown";
}

}  // namespace
}  // namespace lull
