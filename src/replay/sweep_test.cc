#include "replay/sweep.h"

#include <gtest/gtest.h>

#include <optional>
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

TEST(Sweep, TheKneeSavesMostOfThoseThatLoseLittle) {
  using Outcomes = std::vector<Outcome>;
  EXPECT_EQ(find_knee(Outcomes{{100, 0.9}, {90, 0.01}, {85, 0.0}}, 0.01), 1U);
  EXPECT_EQ(find_knee(Outcomes{{100, 0.9}, {90, 0.011}, {85, 0.0}}, 0.01), 2U);
  EXPECT_EQ(find_knee(Outcomes{{100, 0.9}, {90, 0.5}}, 0.01), std::nullopt);
  EXPECT_EQ(find_knee(Outcomes{{90, 0.01}, {90, 0.0}, {90, 0.0}}, 0.01), 2U);  // the same saved: the longest is safest
  EXPECT_EQ(find_knee(Outcomes{{0, 0.0}}, 0.01), std::nullopt);                // nothing saved is no knee
  EXPECT_EQ(find_knee(Outcomes{{90, std::nullopt}}, 0.01), std::nullopt);      // no work was seen: nothing is known
  EXPECT_EQ(find_knee(Outcomes{}, 0.01), std::nullopt);
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
