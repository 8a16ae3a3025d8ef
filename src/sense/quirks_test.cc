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
  EXPECT_GT(counts.known_idle, counts.cases / 8) << "it is not that nothing is known";
  EXPECT_GT(counts.known_busy, counts.cases / 8);
  EXPECT_GT(counts.unknown, 0U);
}

}  // namespace
}  // namespace lull
