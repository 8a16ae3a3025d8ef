#include "gpu/own_signal.h"

#include <gtest/gtest.h>

#include <string>

namespace lull {
namespace {

TEST(OwnSignal, ANameKeepsItsPlaceAndIsFoundByNameAndField) {
  const auto first = name_signal("requests");
  ASSERT_TRUE(first);
  EXPECT_TRUE(is_own(*first));
  EXPECT_EQ(*name_signal("requests"), *first);
  EXPECT_EQ(info(*first).name, "requests");
  EXPECT_EQ(info(*first).field, "signal_requests");
  EXPECT_EQ(metric_by_name("requests"), *first);
  EXPECT_EQ(metric_by_field("signal_requests"), *first);
  EXPECT_TRUE(plausible(*first, -3));
  EXPECT_FALSE(plausible(*first, kUnknown));
}

TEST(OwnSignal, NamesOfLullAndOfTheLanguageAreRefused) {
  EXPECT_NE(name_signal("util").error().message().find("a signal that lull has"), std::string::npos);
  EXPECT_FALSE(name_signal("util_percent"));
  EXPECT_NE(name_signal("for").error().message().find("a meaning of its own"), std::string::npos);
  for (const char* bad : {"", "Requests", "7up", "a-b", "a b", "_a", "\n"}) EXPECT_FALSE(name_signal(bad)) << bad;
  EXPECT_FALSE(name_signal(std::string(41, 'a')));
}

// The last of this program: it takes all places.
TEST(OwnSignal, ThereAreNoMoreThanThereArePlaces) {
  ASSERT_TRUE(name_signal("requests"));
  while (own_signals().size() < kOwnSignals) ASSERT_TRUE(name_signal("s" + std::to_string(own_signals().size())));
  const auto more = name_signal("one_more");
  ASSERT_FALSE(more);
  EXPECT_NE(more.error().message().find("no more can be"), std::string::npos);
  EXPECT_TRUE(name_signal("requests")) << "it has its place";
  EXPECT_EQ(own_signals().size(), kOwnSignals);
}

}  // namespace
}  // namespace lull
