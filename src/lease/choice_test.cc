#include "lease/choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace lull {
namespace {

constexpr double kGiB = 1 << 30;

Reading idle() {
  Reading reading;
  reading.set(Metric::mem_free, 16 * kGiB);
  reading.set(Metric::temp, 40);
  return reading;
}

std::vector<std::size_t> all(std::size_t count) {
  std::vector<std::size_t> positions(count);
  for (std::size_t i = 0; i < count; ++i) positions[i] = i;
  return positions;
}

std::set<std::size_t> chosen(const Topology& topology, std::vector<std::size_t> open, std::size_t count,
                             std::vector<std::size_t> kept = {}, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  const std::vector<Reading> readings(topology.devices(), idle());
  const auto result = choose(Best::topology, open, kept, count, readings, topology, random);
  return {result.begin(), result.end()};
}

// 8 A100 behind NVSwitches: 12 links between any two; pairs share a PCIe switch, fours a socket.
Topology eight_a100() {
  Topology topology(8);
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = a + 1; b < 8; ++b)
      topology.set(a, b,
                   {12, a / 2 == b / 2   ? Nearness::switches
                        : a / 4 == b / 4 ? Nearness::numa_node
                                         : Nearness::system});
  return topology;
}

// 4 RTX 3090, bridges between 0-1 and 2-3, all on one host bridge.
Topology four_3090() {
  Topology topology(4);
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = a + 1; b < 4; ++b) topology.set(a, b, {a / 2 == b / 2 ? 4U : 0U, Nearness::host_bridge});
  return topology;
}

// 8 V100 of a DGX-1: a cube mesh in which each has 6 links.
Topology dgx1() {
  Topology topology(8);
  const std::array<std::array<unsigned, 8>, 8> links = {{{0, 1, 1, 2, 2, 0, 0, 0},
                                                         {1, 0, 2, 1, 0, 2, 0, 0},
                                                         {1, 2, 0, 2, 0, 0, 1, 0},
                                                         {2, 1, 2, 0, 0, 0, 0, 1},
                                                         {2, 0, 0, 0, 0, 1, 1, 2},
                                                         {0, 2, 0, 0, 1, 0, 2, 1},
                                                         {0, 0, 1, 0, 1, 2, 0, 2},
                                                         {0, 0, 0, 1, 2, 1, 2, 0}}};
  for (std::size_t a = 0; a < 8; ++a)
    for (std::size_t b = a + 1; b < 8; ++b)
      topology.set(a, b, {links[a][b], a / 4 == b / 4 ? Nearness::host_bridge : Nearness::system});
  return topology;
}

TEST(Choosing, EightA100) {
  const std::set<std::set<std::size_t>> pairs = {{0, 1}, {2, 3}, {4, 5}, {6, 7}};
  const std::set<std::set<std::size_t>> quads = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  for (unsigned seed = 0; seed < 20; ++seed) {
    EXPECT_TRUE(pairs.contains(chosen(eight_a100(), all(8), 2, {}, seed)));
    EXPECT_TRUE(quads.contains(chosen(eight_a100(), all(8), 4, {}, seed)));
  }
  EXPECT_EQ(chosen(eight_a100(), {0, 2, 4, 5, 6}, 2), (std::set<std::size_t>{4, 5}));
  EXPECT_EQ(chosen(eight_a100(), {0, 1, 2, 4, 5, 6, 7}, 4), (std::set<std::size_t>{4, 5, 6, 7}));
}

TEST(Choosing, Four3090) {
  const std::set<std::set<std::size_t>> pairs = {{0, 1}, {2, 3}};
  for (unsigned seed = 0; seed < 20; ++seed) EXPECT_TRUE(pairs.contains(chosen(four_3090(), all(4), 2, {}, seed)));
  EXPECT_EQ(chosen(four_3090(), {0, 2, 3}, 2), (std::set<std::size_t>{2, 3}));
  EXPECT_EQ(chosen(four_3090(), all(4), 4).size(), 4U);
}

TEST(Choosing, Dgx1) {
  const std::set<std::set<std::size_t>> quads = {{0, 1, 2, 3}, {4, 5, 6, 7}};
  for (unsigned seed = 0; seed < 20; ++seed) EXPECT_TRUE(quads.contains(chosen(dgx1(), all(8), 4, {}, seed)));
}

TEST(Choosing, OneDoesNotBreakAPair) {
  EXPECT_EQ(chosen(four_3090(), {0, 2, 3}, 1), (std::set<std::size_t>{0}));  // 1 is taken
}

TEST(Choosing, GoesWithWhatIsKept) {
  EXPECT_EQ(chosen(four_3090(), {0, 2, 3}, 1, {1}), (std::set<std::size_t>{0}));
  EXPECT_EQ(chosen(eight_a100(), {0, 2, 4, 6}, 1, {7}), (std::set<std::size_t>{6}));
}

// The quick way for very many devices finds islands too.
TEST(Choosing, ManyDevices) {
  Topology topology(64);
  for (std::size_t a = 0; a < 64; ++a)
    for (std::size_t b = a + 1; b < 64; ++b) topology.set(a, b, {a / 8 == b / 8 ? 2U : 0U, Nearness::system});
  const auto result = chosen(topology, all(64), 8);
  ASSERT_EQ(result.size(), 8U);
  EXPECT_EQ(*result.begin() / 8, *result.rbegin() / 8);
}

// Where all sets can be tried, the best one is found: that of which no swap of one leads to a better one may not be it.
TEST(Choosing, OfFewDevicesTheBestSetIsFound) {
  std::mt19937_64 random(7);
  for (int machine = 0; machine < 200; ++machine) {
    Topology topology(8);
    for (std::size_t a = 0; a < 8; ++a)
      for (std::size_t b = a + 1; b < 8; ++b)
        topology.set(a, b, {static_cast<unsigned>(random() % 4), static_cast<Nearness>(random() % 6)});
    const auto joined = [&](const std::set<std::size_t>& set) {
      double sum = 0;
      for (const std::size_t a : set)
        for (const std::size_t b : set)
          if (a < b) sum += closeness(topology.between(a, b));
      return sum;
    };
    double best = 0;
    for (unsigned bits = 0; bits < 256; ++bits) {
      std::set<std::size_t> set;
      for (std::size_t i = 0; i < 8; ++i)
        if ((bits >> i & 1U) != 0) set.insert(i);
      if (set.size() == 4) best = std::max(best, joined(set));
    }
    EXPECT_EQ(joined(chosen(topology, all(8), 4)), best) << machine;
  }
}

TEST(Choosing, MemoryAndCool) {
  std::vector<Reading> readings(4, idle());
  const std::array<double, 4> free = {4 * kGiB, 16 * kGiB, 8 * kGiB, kUnknown};
  const std::array<double, 4> temp = {60, 50, kUnknown, 30};
  for (std::size_t i = 0; i < 4; ++i) {
    readings[i].set(Metric::mem_free, free[i]);
    readings[i].set(Metric::temp, temp[i]);
  }
  std::mt19937_64 random(1);
  EXPECT_EQ(choose(Best::memory, all(4), {}, 2, readings, {}, random), (std::vector<std::size_t>{1, 2}));
  EXPECT_EQ(choose(Best::memory, all(4), {}, 3, readings, {}, random), (std::vector<std::size_t>{0, 1, 2}));
  EXPECT_EQ(choose(Best::cool, all(4), {}, 2, readings, {}, random), (std::vector<std::size_t>{1, 3}));
}

TEST(Choosing, RandomReachesEveryGpu) {
  std::mt19937_64 random(1);
  const std::vector<Reading> readings(8, idle());
  std::set<std::size_t> seen;
  for (int i = 0; i < 200; ++i) seen.insert(choose(Best::random, all(8), {}, 1, readings, {}, random).front());
  EXPECT_EQ(seen.size(), 8U);
}

TEST(Choosing, OrderIsKnownByName) {
  EXPECT_EQ(*parse_best("topology"), Best::topology);
  EXPECT_NE(parse_best("topologie").error().message().find("did you mean 'topology'"), std::string::npos);
}

}  // namespace
}  // namespace lull
