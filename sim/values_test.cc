#include "sim/values.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lull::sim {
namespace {

Result<double> parse(std::string_view name, std::string_view text) {
  const auto info = find_value(name);
  return info ? parse_value(**info, text) : std::unexpected(info.error());
}

TEST(Values, UnitsOfPeople) {
  EXPECT_EQ(parse("util", "35"), 35);
  EXPECT_EQ(parse("util", "35%"), 35);
  EXPECT_EQ(parse("power", "180.5W"), 180.5);
  EXPECT_EQ(parse("temp", "60C"), 60);
  EXPECT_EQ(parse("clock", "1410 MHz"), 1410);
  EXPECT_EQ(parse("mem_used", "8GiB"), 8.0 * (1U << 30));
  EXPECT_EQ(parse("pcie_rx", "2GB/s"), 2e9);
  EXPECT_EQ(parse("throttle", "0x4"), 4);
  EXPECT_TRUE(std::isnan(*parse("util", "auto")));
  EXPECT_EQ(parse("util", "none"), kUnsupported);
}

TEST(Values, WrongOnesAreRefusedWithAnExample) {
  for (const auto& [name, text] : std::initializer_list<std::pair<const char*, const char*>>{{"util", "101"},
                                                                                             {"util", "-1"},
                                                                                             {"util", "35W"},
                                                                                             {"util", ""},
                                                                                             {"power", "8GiB"},
                                                                                             {"mem_used", "8 gigs"},
                                                                                             {"temp", "nan"},
                                                                                             {"pstate", "16"},
                                                                                             {"throttle", "0xg"}}) {
    const auto parsed = parse(name, text);
    ASSERT_FALSE(parsed) << name << "=" << text;
    EXPECT_NE(parsed.error().what.find(std::string(name) + "="), std::string::npos) << parsed.error().what;
  }
  EXPECT_NE(parse("utl", "1").error().what.find("did you mean 'util'?"), std::string::npos);
  EXPECT_NE(parse("zzzzzz", "1").error().what.find("mem_used"), std::string::npos);
}

}  // namespace
}  // namespace lull::sim
