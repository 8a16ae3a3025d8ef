#include "sim/trace_csv.h"

#include <gtest/gtest.h>

namespace lull::sim {
namespace {

using namespace std::chrono_literals;

TEST(TraceCsv, OnlyChangesAreSteps) {
  const auto points = read_trace_csv(
      "time,gpu,util_percent,power_watts\n"
      "2024-03-15T11:04:29Z,0,10,70\n2024-03-15T11:04:29Z,1,99,300\n"
      "2024-03-15T11:04:30Z,0,10,71\n",
      "t.csv", 0);
  ASSERT_TRUE(points) << points.error().message();
  ASSERT_EQ(points->size(), 3U);
  EXPECT_EQ((*points)[2].at, 1s);
  EXPECT_EQ((*points)[2].metric, Metric::power);
  EXPECT_EQ((*points)[2].to, 71);
}

TEST(TraceCsv, WhatWasNotReadCannotBeReadAgain) {
  for (const char* cell : {"", "nan", "[N/A]", "[GPU is lost]", "null"}) {
    const auto points =
        read_trace_csv(std::string("time_seconds,util_percent\n0,5\n1,") + cell + "\n2,5\n", "t.csv", 0);
    ASSERT_TRUE(points) << cell;
    ASSERT_EQ(points->size(), 3U) << cell;
    EXPECT_EQ((*points)[1].to, kUnsupported) << cell;
    EXPECT_EQ((*points)[2].to, 5) << cell;
  }
}

TEST(TraceCsv, PcieIsSplitAndQuotesAreUnderstood) {
  const auto points =
      read_trace_csv("\"time_seconds\",pcie_bytes_per_second,name\r\n0,\"10\",\"a, \"\"b\"\"\"\r\n", "t.csv", 0);
  ASSERT_TRUE(points) << points.error().message();
  ASSERT_EQ(points->size(), 2U);
  EXPECT_EQ((*points)[0].to + (*points)[1].to, 10);
}

TEST(TraceCsv, MistakesNameTheirLine) {
  const auto complaint = [](std::string_view text, std::size_t gpu = 0) {
    const auto points = read_trace_csv(text, "t.csv", gpu);
    return points ? "accepted" : points.error().message();
  };
  EXPECT_NE(complaint("gpu,util_percent\n0,1\n").find("t.csv:1: no column for the time"), std::string::npos);
  EXPECT_NE(complaint("time_seconds,gpu\n0,1\n").find("t.csv:1: no column with readings"), std::string::npos);
  EXPECT_NE(complaint("time_seconds,util_percent\n0,1\nx,1\n").find("t.csv:3: no time"), std::string::npos);
  EXPECT_NE(complaint("time_seconds,util_percent\n1,1\n0,1\n").find("t.csv:3: this row is earlier"), std::string::npos);
  EXPECT_NE(complaint("time_seconds,util_percent\n1,abc\n").find("t.csv:2: 'abc'"), std::string::npos);
  EXPECT_NE(complaint("time_seconds,util_percent\n1,400\n").find("0 to 100"), std::string::npos);
  EXPECT_NE(complaint("time_seconds,util_percent\n1,4\n", 3).find("nothing about GPU 3"), std::string::npos);
  EXPECT_NE(complaint("").find("nothing about GPU 0"), std::string::npos);
}

}  // namespace
}  // namespace lull::sim
