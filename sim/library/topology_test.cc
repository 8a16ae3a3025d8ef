// MIG devices, and how cards are wired, from both ends.
#include <gtest/gtest.h>

#include <cstring>

#include "sim/library/library_test.h"

namespace {

using namespace lull::sim;

// ---- MIG and wiring -----------------------------------------------------------------------------------------

Plan plan_with_mig() {
  Plan plan = plan_of({"A100", "RTX 3090", "RTX 3090", "H100", "H100"});
  EXPECT_TRUE(cut(plan.gpus[0].gpu, 0, {"1g.10gb", "2g.20gb", "3g.40gb"}));
  return plan;
}

class OnMig : public OnSim {
 protected:
  OnMig() : OnSim(plan_with_mig()) {}
};

TEST_F(OnMig, DevicesHaveTheirOwnMemoryAndProcesses) {
  Device mig = nullptr;
  EXPECT_EQ(library_.call("nvmlDeviceGetMigDeviceHandleByIndex", device(0), 3U, &mig), kNotFound);
  EXPECT_EQ(library_.call("nvmlDeviceGetMigDeviceHandleByIndex", device(1), 0U, &mig), kNotSupported);
  ASSERT_EQ(library_.call("nvmlDeviceGetMigDeviceHandleByIndex", device(0), 1U, &mig), kSuccess);
  char text[96];
  EXPECT_EQ(library_.call("nvmlDeviceGetName", mig, text, 96U), kSuccess);
  EXPECT_STREQ(text, "NVIDIA A100-SXM4-80GB MIG 2g.20gb");
  EXPECT_EQ(library_.call("nvmlDeviceGetUUID", mig, text, 96U), kSuccess);
  EXPECT_EQ(std::strncmp(text, "MIG-", 4), 0);
  Load load = load_on(0, 50, 3 << 20);
  load.mig = 1;
  auto writer = sim_.writer();
  const auto held = writer.hold(load);
  ASSERT_TRUE(held);
  Memory memory{};
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo", mig, &memory), kSuccess);
  EXPECT_EQ(memory.total, 20480ULL << 20);
  EXPECT_EQ(memory.used, 16U << 20);
  unsigned count = 1;
  Process2 process{};
  EXPECT_EQ(library_.call("nvmlDeviceGetComputeRunningProcesses_v3", mig, &count, &process), kSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(process.gpu_instance, 2U);
  Utilization util{};
  EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", mig, &util), kNotSupported);
  EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", device(0), &util), kNotSupported);
  Device parent = nullptr;
  EXPECT_EQ(library_.call("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", mig, &parent), kSuccess);
  EXPECT_EQ(parent, device(0));
}

TEST_F(OnMig, WiringIsToldFromBothEnds) {
  unsigned level = 99;
  EXPECT_EQ(library_.call("nvmlDeviceGetTopologyCommonAncestor", device(0), device(1), &level), kSuccess);
  EXPECT_EQ(level, 10U);
  EXPECT_EQ(library_.call("nvmlDeviceGetTopologyCommonAncestor", device(1), device(2), &level), kSuccess);
  EXPECT_EQ(level, 40U);
  EXPECT_EQ(library_.call("nvmlDeviceGetTopologyCommonAncestor", device(0), device(4), &level), kSuccess);
  EXPECT_EQ(level, 50U);
  unsigned active = 9;
  EXPECT_EQ(library_.call("nvmlDeviceGetNvLinkState", device(3), 17U, &active), kSuccess);
  EXPECT_EQ(active, 1U);
  EXPECT_EQ(library_.call("nvmlDeviceGetNvLinkState", device(3), 18U, &active), kInvalidArgument);
  unsigned long set[16] = {};
  EXPECT_EQ(library_.call("nvmlDeviceGetCpuAffinity", device(4), 16U, set), kSuccess);
  EXPECT_EQ(set[0], 0xFFFFFFFF00000000UL);
}

TEST(Wiring, PairsOfCardsWithFourLinksMeet) {
  const TestSim sim(std::vector<std::string>{"RTX 3090", "RTX 3090"});
  const Library library(kLibrary);
  ::setenv("LULL_SIM", sim.folder().c_str(), 1);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  Device one = nullptr;
  Device other = nullptr;
  library.call("nvmlDeviceGetHandleByIndex_v2", 0U, &one);
  library.call("nvmlDeviceGetHandleByIndex_v2", 1U, &other);
  Pci far{};
  Pci pci{};
  EXPECT_EQ(library.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", one, 3U, &far), kSuccess);
  EXPECT_EQ(library.call("nvmlDeviceGetPciInfo_v3", other, &pci), kSuccess);
  EXPECT_STREQ(far.bus_id, pci.bus_id);
  EXPECT_EQ(library.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", one, 4U, &far), kNotSupported) << "others have it";
  EXPECT_EQ(library.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", one, 18U, &far), kInvalidArgument) << "none has it";
  library.call("nvmlShutdown");
}

}  // namespace
