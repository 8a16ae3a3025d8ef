// Judging takes memory when it is set up and never again: not a block, not a sample,
// whatever the readings are.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <vector>

#include "engine/judge.h"

namespace {

std::atomic<std::size_t> allocations{0};

void* counted(std::size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}

// Kept out of line: where only this half of a pair is inlined, the compiler takes the halves for a mismatch.
[[gnu::noinline]] void give_back(void* memory) { std::free(memory); }

}  // namespace

void* operator new(std::size_t size) { return counted(size); }
void* operator new[](std::size_t size) { return counted(size); }
void operator delete(void* memory) noexcept { give_back(memory); }
void operator delete[](void* memory) noexcept { give_back(memory); }
void operator delete(void* memory, std::size_t) noexcept { give_back(memory); }
void operator delete[](void* memory, std::size_t) noexcept { give_back(memory); }

namespace lull {
namespace {

constexpr const char* kRule =
    "(any(mean(util, 30s)) < 10 or not (power < 30% for 5s)) and any(util < 50 for 3 samples) and "
    "mean(util) < 60 for 10s";

TEST(NoAllocation, OfBlocks) {
  PolicyEvaluator evaluator = PolicyEvaluator::compile(*Policy::parse(kRule, "util > 80 for 2s"), {.gpus = 4});
  std::vector<Instant> at;
  std::vector<float> values;
  for (int i = 0; i < 5000; ++i) {
    at.emplace_back(std::chrono::seconds(i + (i > 3000 ? 100 : 0)));
    values.push_back(i % 97 == 0 ? kUnknownSample : static_cast<float>(i / 50 % 3 * 45));
  }
  std::vector<Block> scope(4);
  PolicyAnswers answers;
  const std::size_t before = allocations;
  for (std::size_t from = 0; from + 250 <= at.size(); from += 250) {
    for (Block& block : scope) {
      block.at = std::span(at).subspan(from, 250);
      for (auto& column : block.value) column = std::span(values).subspan(from, 250);
    }
    if (!evaluator.feed(scope, answers)) FAIL();
  }
  EXPECT_EQ(allocations - before, 0U);
}

TEST(NoAllocation, OfSnapshots) {
  auto inventory = std::make_shared<Inventory>();
  inventory->devices.resize(3);
  for (unsigned g = 0; g < 3; ++g) inventory->devices[g].index = g;
  Snapshot snapshot;
  snapshot.inventory = inventory;
  snapshot.readings.resize(3);
  Judge judge(*Policy::parse(kRule, "util > 80 for 2s"), inventory->devices, {});
  const std::size_t before = allocations;
  for (int i = 0; i < 1000; ++i) {
    for (Reading& reading : snapshot.readings) {
      reading.set(Metric::util, i / 20 % 2 * 90);
      reading.set(Metric::power, 100);
      reading.set(Metric::power_limit, 700);
      if (i % 31 == 0) reading.miss(Metric::util, Absence::failed);
    }
    snapshot.at += std::chrono::seconds(1);
    if (!judge.observe(snapshot)) FAIL();
  }
  EXPECT_EQ(allocations - before, 0U);
}

}  // namespace
}  // namespace lull
