#include "replay/replay.h"

#include <gtest/gtest.h>

#include <vector>

namespace lull::replay {
namespace {

TEST(Sweep, MistakesAreSaid) {
  for (const char* bad : {"for", "fro=5m", "for=", "util=1,,2"}) EXPECT_FALSE(parse_axis(bad)) << bad;
  const Policy policy = *Policy::parse("util < 5 for 20m");
  const auto combined = [&](std::vector<Axis> axes) { return combine(policy, axes); };
  EXPECT_FALSE(combined({{"for", {"5m", "3 samples"}}}));
  EXPECT_FALSE(combined({{"for", {"60s", "1m"}}}));
  EXPECT_FALSE(combined({{"temp", {"5"}}}));
  EXPECT_FALSE(combined({{"util", {"5"}}, {"util", {"6"}}}));
  const auto good = combined({{"for", {"1h", "5m"}}, {"util", {"1", "5"}}});
  ASSERT_TRUE(good);
  ASSERT_EQ(good->size(), 4U);
  EXPECT_EQ((*good)[0].policy.idle.text, "util < 1 for 5m");
  EXPECT_EQ((*good)[3].policy.idle.text, "util < 5 for 1h");
}

TEST(Sweep, ARuleWithoutForStartsFromTheFirstValue) {
  Policy policy = *Policy::parse("util < 5");
  ASSERT_TRUE(start_from_first(policy, {{"util", {"1"}}, {"for", {"30m", "5m"}}}));
  EXPECT_EQ(policy.idle.text, "util < 5 for 30m");
  ASSERT_TRUE(start_from_first(policy, {{"for", {"1h"}}}));
  EXPECT_EQ(policy.idle.text, "util < 5 for 30m");
}

}  // namespace
}  // namespace lull::replay
