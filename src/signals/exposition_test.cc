#include "signals/reading.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>
#include <string>

namespace lull {
namespace {

TEST(Exposition, SeriesHaveLabelsValuesAndTimes) {
  const auto read = read_exposition(
      "# HELP a what it is\n# TYPE a counter\n"
      "a{model=\"x \\\"y\\\" \\\\ z\",b=\"1\",} 1.5e3 1395066363000\n"
      "other 7\n\n  a  +Inf\na{} NaN\r\n",
      {"a"});
  ASSERT_TRUE(read) << read.error().message();
  ASSERT_EQ(read->size(), 3U);
  EXPECT_EQ((*read)[0].labels, (SeriesLabels{{"b", "1"}, {"model", "x \"y\" \\ z"}}));
  EXPECT_EQ((*read)[0].value, 1500);
  EXPECT_EQ((*read)[0].time, 1395066363.0);
  EXPECT_TRUE(std::isinf((*read)[1].value));
  EXPECT_TRUE(std::isnan((*read)[2].value));
}

TEST(Exposition, OpenMetricsHasSecondsAndExemplars) {
  const auto read = read_exposition("a_total 3 1395066363.5\na_total 4 # {id=\"x\"} 1 2\n# EOF\n", {"a_total"}, true);
  ASSERT_TRUE(read);
  EXPECT_EQ((*read)[0].time, 1395066363.5);
  EXPECT_EQ((*read)[1].value, 4);
  // One that ends before its end may lack a series, whichever line it is cut behind.
  const auto cut = read_exposition("a_total 3\n", {"a_total"}, true);
  ASSERT_FALSE(cut);
  EXPECT_NE(cut.error().message().find("cut short"), std::string::npos);
  EXPECT_TRUE(read_exposition("a_total 3\n", {"a_total"}));
}

TEST(Exposition, ALineThatCannotBeReadMakesAllUnreadable) {
  for (const char* bad : {"a\n", "a x\n", "a 1 x\n", "a 1 2 3\n", "a{ 1\n", "a{b} 1\n", "a{b=1} 1\n", "a{b=\"1} 1\n",
                          "<html>\n", "{\"a\": 1}\n", "a{b=\"1\"c=\"2\"} 1\n", "a 1\nb"})
    EXPECT_FALSE(read_exposition(std::string("b 1\n") + bad, {"a"})) << bad;
  EXPECT_TRUE(read_exposition("", {"a"})->empty());
}

RC_GTEST_PROP(Exposition, AnyBytesAreReadOrRefused, (const std::string& text)) {
  (void)read_exposition(text, {"a"});
  (void)read_exposition("a{" + text + "} 1\n", {"a"}, true);
}

}  // namespace
}  // namespace lull
