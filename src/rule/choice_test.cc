#include "rule/choice.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

namespace lull {
namespace {

constexpr double kMiB = 1 << 20;
constexpr double kGiB = 1 << 30;

Device gpu(unsigned index = 0, std::string name = "NVIDIA GeForce RTX 3090") {
  Device device;
  device.index = index;
  device.uuid = "GPU-" + std::to_string(index);
  device.name = std::move(name);
  return device;
}

Reading idle() {
  Reading reading;
  reading.set(Metric::util, 0);
  reading.set(Metric::mem_util, 0);
  reading.set(Metric::procs, 0);
  reading.set(Metric::mem_used, 300 * kMiB);
  reading.set(Metric::mem_total, 16 * kGiB);
  reading.set(Metric::mem_free, 16 * kGiB - 300 * kMiB);
  reading.set(Metric::temp, 40);
  reading.set(Metric::power, 30);
  reading.tenants.emplace();
  return reading;
}

Judgement judged(const Reading& reading, const Wishes& wishes = {}, const Device& device = gpu(),
                 const std::map<pid_t, ProcessInfo>& processes = {}) {
  return judge(device, reading, wishes, processes);
}

TEST(Judging, TakesAnIdleGpu) { EXPECT_TRUE(judged(idle()).fits); }

TEST(Judging, SaysWhatSpeaksAgainstABusyOne) {
  Reading busy = idle();
  busy.set(Metric::procs, 3);
  busy.set(Metric::util, 41);
  EXPECT_EQ(judged(busy).why, "3 processes, 41 % util; wanted 0");
  busy.set(Metric::procs, 1);
  Wishes wishes;
  wishes.util = Limit::of(10);
  wishes.procs = Limit::of(1);
  EXPECT_EQ(judged(busy, wishes).why, "41 % util; wanted at most 10 % util");
  busy.set(Metric::util, 10);
  EXPECT_TRUE(judged(busy, wishes).fits);
}

TEST(Judging, MemoryInUseCounts) {
  Reading full = idle();
  full.set(Metric::mem_used, 16000 * kMiB);
  full.set(Metric::mem_total, 16384 * kMiB);
  EXPECT_FALSE(judged(full).fits);
  EXPECT_EQ(judged(full).why, "15.6 GiB in use; wanted at most 700.0 MiB in use");
  Wishes any;
  any.mem_used = Limit::off();
  EXPECT_TRUE(judged(full, any).fits);
}

TEST(Judging, ADriverMayKeepALittle) {
  EXPECT_EQ(usual_memory(16 * kGiB), 700 * kMiB);
  EXPECT_DOUBLE_EQ(usual_memory(80 * kGiB), 0.02 * 80 * kGiB);
  EXPECT_EQ(usual_memory(kUnknown), 700 * kMiB);
}

// The law: replacing any value that is looked at by unknown never makes a GPU fit.
TEST(Judging, UnknownNeverFits) {
  EXPECT_TRUE(rc::check([] {
    Reading reading = idle();
    reading.set(Metric::util, *rc::gen::element(0.0, 50.0));
    reading.set(Metric::procs, *rc::gen::element(0.0, 2.0));
    reading.set(Metric::mem_used, *rc::gen::element(0.0, 8 * kGiB));
    Wishes wishes;
    if (*rc::gen::arbitrary<bool>()) wishes.util = Limit::of(*rc::gen::element(0.0, 100.0));
    if (*rc::gen::arbitrary<bool>()) wishes.temp = Limit::of(60);
    if (*rc::gen::arbitrary<bool>()) wishes.mem_free = Limit::of(kGiB);
    if (*rc::gen::arbitrary<bool>()) wishes.tolerate = kGiB;
    const bool before = judged(reading, wishes).fits;
    const Metric gone = *rc::gen::element(Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used,
                                          Metric::mem_free, Metric::temp, Metric::mem_total);
    reading.miss(gone, Absence::failed);
    if (judged(reading, wishes).fits) RC_ASSERT(before);
  }));
  for (const Metric metric : {Metric::util, Metric::mem_util, Metric::procs, Metric::mem_used}) {
    Reading reading = idle();
    reading.miss(metric, Absence::not_supported);
    EXPECT_FALSE(judged(reading).fits);
    EXPECT_NE(judged(reading).why.find("cannot be read (not supported)"), std::string::npos) << judged(reading).why;
  }
}

TEST(Judging, ALostGpuIsNotTakenAndTheReasonIsSaid) {
  Reading lost;
  lost.miss_all(Absence::lost);
  EXPECT_EQ(judged(lost).why, "cannot be read (GPU is lost)");
  EXPECT_FALSE(judged(lost).lasting);  // it may come back
}

TEST(Judging, NamesMatchInPartAndInAnyCase) {
  Wishes wishes;
  wishes.name = "rtx 30";
  EXPECT_TRUE(judged(idle(), wishes).fits);
  wishes.name = "A100";
  EXPECT_TRUE(judged(idle(), wishes).lasting);
  EXPECT_EQ(judged(idle(), wishes).why, "is a NVIDIA GeForce RTX 3090; wanted A100");
}

TEST(Judging, FreeMemoryAndTemperature) {
  Wishes wishes;
  wishes.mem_free = Limit::of(15.9 * kGiB);
  EXPECT_FALSE(judged(idle(), wishes).fits);
  EXPECT_FALSE(judged(idle(), wishes).lasting);
  wishes.mem_free = Limit::of(20 * kGiB);
  EXPECT_TRUE(judged(idle(), wishes).lasting);  // the card is too small
  wishes = {};
  wishes.temp = Limit::of(39);
  EXPECT_EQ(judged(idle(), wishes).why, "40 C; wanted at most 39 C");
}

TEST(Judging, SmallLeftoversMayBeTolerated) {
  Reading left = idle();
  left.set(Metric::procs, 1);
  left.set(Metric::mem_used, 900 * kMiB);
  EXPECT_FALSE(judged(left).fits);
  Wishes wishes;
  wishes.tolerate = kGiB;
  EXPECT_TRUE(judged(left, wishes).fits);
  left.set(Metric::mem_used, 1100 * kMiB);
  EXPECT_FALSE(judged(left, wishes).fits);
  left.set(Metric::mem_used, 900 * kMiB);
  left.set(Metric::util, 3);  // it works: no leftover
  EXPECT_FALSE(judged(left, wishes).fits);
  left.set(Metric::util, 0);
  left.miss(Metric::mem_used, Absence::failed);
  EXPECT_FALSE(judged(left, wishes).fits);
}

TEST(Judging, MineCountsAsIdleOnlyIfAllOfItIsMine) {
  Reading busy = idle();
  busy.set(Metric::procs, 2);
  busy.set(Metric::util, 80);
  busy.set(Metric::mem_used, 8 * kGiB);
  busy.tenants.emplace(2);
  (*busy.tenants)[0].pid = 10;
  (*busy.tenants)[1].pid = 11;
  std::map<pid_t, ProcessInfo> processes;
  processes[10].uid = 1000;
  processes[11].uid = 1000;
  Wishes wishes;
  wishes.mine = 1000;
  EXPECT_TRUE(judged(busy, wishes, gpu(), processes).fits);
  processes[11].uid = 1001;
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  processes.erase(11);  // somebody whom we cannot see
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  processes[11].uid = 1000;
  wishes.util = Limit::of(50);  // said by name: it stands
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
  wishes.util = {};
  busy.tenants.reset();
  EXPECT_FALSE(judged(busy, wishes, gpu(), processes).fits);
}

TEST(Judging, MigDevicesGoByProcessesAndMemory) {
  Device mig = gpu();
  mig.kind = DeviceKind::mig;
  mig.uuid = "MIG-1";
  Reading reading = idle();
  reading.miss(Metric::util, Absence::not_supported);
  reading.miss(Metric::mem_util, Absence::not_supported);
  EXPECT_TRUE(judged(reading, {}, mig).fits);
  Wishes wishes;
  wishes.util = Limit::of(5);
  EXPECT_FALSE(judged(reading, wishes, mig).fits);
  reading.set(Metric::procs, 1);
  EXPECT_FALSE(judged(reading, {}, mig).fits);
  Reading parent = idle();
  parent.mig_mode = true;
  EXPECT_TRUE(judged(parent).lasting);
}

TEST(Judging, WhereIsARuleOnOneReading) {
  Wishes wishes;
  wishes.where = *where_rule(*parse_rule("power < 50W and temp < 60"));
  EXPECT_TRUE(judged(idle(), wishes).fits);
  Reading warm = idle();
  warm.set(Metric::temp, 71);
  EXPECT_EQ(judged(warm, wishes).why, "power 30 W, temp 71 C; wanted power < 50W and temp < 60C");
  warm.miss(Metric::temp, Absence::not_supported);
  EXPECT_EQ(judged(warm, wishes).why, "temp cannot be read (not supported)");
  EXPECT_FALSE(where_rule(*parse_rule("util < 5 for 10m")));
  EXPECT_FALSE(where_rule(*parse_rule("cpu < 5")));
}

// ---- choosing ----------------------------------------------------------------

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
