#include "engine/judge.h"

#include <gtest/gtest.h>

namespace lull {
namespace {

std::vector<Track> tracks(std::string_view rule) { return tracks_of(*parse_rule(rule)); }

TEST(Tracks, WhichWayIsWorse) {
  for (const char* low : {"util < 5", "util <= 5", "util == 0", "not util > 5", "not util >= 5", "not not util < 5"}) {
    ASSERT_EQ(tracks(low).size(), 1U) << low;
    EXPECT_TRUE(tracks(low)[0].high_is_worse) << low;
  }
  for (const char* high : {"util > 5", "util >= 5", "not util < 5", "not util <= 5", "not util == 0"}) {
    ASSERT_EQ(tracks(high).size(), 1U) << high;
    EXPECT_FALSE(tracks(high)[0].high_is_worse) << high;
  }
}

TEST(Tracks, EachSignalOnceAsItIsCompared) {
  const auto found = tracks("util < 5 for 10m and (util < 9 or power < 50W) and mean(util, 1m) < 3 and any(temp < 60)");
  ASSERT_EQ(found.size(), 4U);
  EXPECT_EQ(found[0].metric, Metric::util);
  EXPECT_EQ(found[1].metric, Metric::power);
  EXPECT_EQ(found[2].window, std::chrono::minutes(1));
  EXPECT_EQ(found[3].metric, Metric::temp);
}

}  // namespace
}  // namespace lull
