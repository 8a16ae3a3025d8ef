// Compares every size, offset, constant and call of abi.h with the real nvml.h.
#include "nvml/calls.h"

#include <gtest/gtest.h>

#include <cstddef>

#include "nvml/abi_facts_test.h"

namespace lull::nvml {
namespace {

std::vector<Fact> our_facts() {
  std::vector<Fact> facts;
#define SIZE(theirs, ours) facts.push_back({"sizeof " #theirs, std::to_string(sizeof(ours))});
#define FIELD(theirs, their_field, ours, our_field) \
  facts.push_back({#theirs "." #their_field, std::to_string(offsetof(ours, our_field))});
#define SAME(theirs, ours) facts.push_back({#theirs, std::to_string(static_cast<unsigned long long>(ours))});
#define CALL(name) facts.push_back({"nvml" #name, shape_of(static_cast<call::name*>(nullptr))});
#include "nvml/abi_facts.inc"
  return facts;
}

TEST(Abi, IsTheRealHeaders) {
  const std::vector<Fact> real = real_facts();
  if (real.empty()) GTEST_SKIP() << "nvml.h is not installed (Debian: libnvidia-ml-dev, non-free)";
  const std::vector<Fact> ours = our_facts();
  ASSERT_EQ(ours.size(), real.size());
  for (std::size_t i = 0; i < ours.size(); ++i) {
    ASSERT_EQ(ours[i].name, real[i].name);
    EXPECT_EQ(ours[i].value, real[i].value) << ours[i].name;
  }
}

// What holds without the real header: the sizes that clients were built with.
TEST(Abi, StridesOfTheProcessListsDiffer) {
  EXPECT_EQ(sizeof(ProcessV1), 16U);
  EXPECT_EQ(sizeof(Process), 24U);
  EXPECT_EQ(sizeof(ProcessProtected), 32U);
  EXPECT_EQ(kMemoryV2, 0x2000028U);
  EXPECT_GT(our_facts().size(), 200U);
}

// As CUDA 13 has it; a library may think of the whole list as ours to lend.
TEST(Abi, TheChipsCountersHaveTheLongestListThereIs) {
  EXPECT_EQ(sizeof(GpmMetric), 40U);
  EXPECT_EQ(offsetof(GpmMetricsGet, metrics), 24U);
  EXPECT_GE(sizeof(GpmMetricsGet), 13344U);
}

}  // namespace
}  // namespace lull::nvml
