// Traps in what AMD's and Intel's tools write; the fixtures have the rest.

#include <gtest/gtest.h>

#include "trace/names.h"
#include "trace/test_trace.h"

namespace lull::trace {
namespace {

TEST(VendorTools, NamesThatOnlyLookLikeASignalAreNone) {
  // A counter, how full the memory is, temperatures and clocks of something else.
  for (const char* name : {"GFX Activity", "Memory Activity", "GPU Memory Utilization", "GPU Memory Allocated (VRAM%)",
                           "mem", "gfx_0_max_clk", "Temperature (Sensor memory)", "vram_percent"})
    EXPECT_FALSE(meaning_of(name)) << name;
}

ReadBack read_rows(std::string_view text, bool every) {
  const TempFile file{std::string(text)};
  TraceOptions options;
  options.paths = {file.path()};
  options.metrics = {Metric::util};
  if (every) options.every = std::chrono::seconds(5);
  auto back = read_back(options);
  EXPECT_TRUE(back) << back.error().message();
  return *std::move(back);
}

TEST(VendorTools, AHeaderBeforeEachSampleIsNoGapButOneBehindSeveralIs) {
  const std::string header = "device,GPU use (%)\n";
  const auto loop = read_rows(header + "card0,1\n" + header + "card0,2\n" + header + "card0,3\n", true);
  ASSERT_EQ(loop.of.at("card0").size(), 3U);
  EXPECT_EQ(loop.of.at("card0")[2].at, 10'000'000'000);
  const auto two = read_rows(header + "card0,1\ncard0,2\n" + header + "card0,3\n", true);
  EXPECT_EQ(two.of.at("card0")[2].at, 70'000'000'000);
}

TEST(VendorTools, OnlyPeriodsOfIntelGpuTopAreMeans) {
  const TempFile intel(R"([{"period": {"duration": 1000}, "engines": {"Render/3D": {"busy": 5}}},)");
  const TempFile amd(R"([{"timestamp": 1772939616, "gpu": 0, "usage": {"gfx_activity": {"value": 5, "unit": "%"}}}])");
  TraceOptions options;
  options.metrics = {Metric::util};
  options.paths = {intel.path()};
  EXPECT_TRUE(TraceReader::open(options).value().holds_means());
  options.paths = {amd.path()};
  EXPECT_FALSE(TraceReader::open(options).value().holds_means());
}

}  // namespace
}  // namespace lull::trace
