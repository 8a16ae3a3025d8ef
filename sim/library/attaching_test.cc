// Cards that take their time to attach, and read busy for a while after it.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <functional>
#include <thread>

#include "sim/library/library_test.h"

namespace {

using namespace lull::sim;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Plan two_that_attach(std::int64_t attach_ns) {
  Plan plan = plan_of({"T4", "T4"});
  for (GpuPlan& gpu : plan.gpus) {
    gpu.gpu.attach_ns = attach_ns;
    gpu.gpu.persistence = 0;
  }
  return plan;
}
class Attaching : public OnSim {
 protected:
  static constexpr std::int64_t kAttach = 300'000'000;
  static constexpr double kSeconds = 0.3;
  Attaching() : OnSim(two_that_attach(kAttach)) {}
  double find(unsigned index) {
    return seconds_of([&] { device_[index] = device(index); });
  }
};

TEST_F(Attaching, EveryWayOfFindingAttachesAndTheLastClientTakesItAway) {
  char uuid[96];
  Pci pci{};
  EXPECT_GE(find(0), kSeconds);
  EXPECT_EQ(number("nvmlDeviceGetPersistenceMode", 0), 0U);
  ASSERT_EQ(library_.call("nvmlDeviceGetUUID", device_[0], uuid, 96U), kSuccess);
  ASSERT_EQ(library_.call("nvmlDeviceGetPciInfo_v3", device_[0], &pci), kSuccess);
  const auto again = [&](const std::function<int(Device*)>& find) {
    EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
    EXPECT_EQ(library_.call("nvmlInit_v2"), kSuccess);
    Device out = nullptr;
    EXPECT_GE(seconds_of([&] { EXPECT_EQ(find(&out), kSuccess); }), kSeconds);
  };
  again([&](Device* out) { return library_.call("nvmlDeviceGetHandleByUUID", uuid, out); });
  again([&](Device* out) { return library_.call("nvmlDeviceGetHandleByPciBusId_v2", pci.bus_id, out); });
  again([&](Device* out) { return library_.call("nvmlDeviceGetHandleByIndex", 0U, out); });
}

class AttachingSlowly : public OnSim {
 protected:
  AttachingSlowly() : OnSim(two_that_attach(2'000'000'000)) {}
};

TEST_F(AttachingSlowly, GpusAttachSideBySideAndOnce) {
  const double first = seconds_of([&] {
    std::thread other([&] { device_[1] = device(1); });
    device_[0] = device(0);
    other.join();
  });
  EXPECT_GE(first, 2);
  EXPECT_LT(first, 4);
  EXPECT_LT(seconds_of([&] { device_[0] = device(0); }), 2);
}

// For these attaching takes an hour: that they end is the test.
class AttachingForever : public OnSim {
 protected:
  AttachingForever() : OnSim(two_that_attach(3'600'000'000'000)) {}  // init alone attaches nothing
};

TEST_F(AttachingForever, PersistenceModeMakesItInstant) {
  ASSERT_TRUE(sim_.writer().set({{0, Metric::persistence, 1}}));
  EXPECT_EQ(number("nvmlDeviceGetPersistenceMode", 0), 1U);
}

TEST_F(AttachingForever, AFaultIsToldAtOnce) {
  ASSERT_TRUE(sim_.writer().add_faults({fault_on(1, kGpuIsLost)}));
  Device out = nullptr;
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", 1U, &out), kGpuIsLost);
}

TEST_F(AttachingForever, TheEndOfTheSimulationIsNotWaitedFor) {
  int result = kSuccess;
  std::thread stuck([&] {
    Device out = nullptr;
    result = library_.call("nvmlDeviceGetHandleByIndex_v2", 0U, &out);
  });
  sim_.writer().close_simulation();
  stuck.join();
  EXPECT_EQ(result, kDriverNotLoaded);
}

TEST(Scrubbing, ReadsBusyForAWhileAfterAProcessAttached) {
  Plan plan = plan_of({"T4"});
  plan.gpus[0].gpu.scrub_ns = 400'000'000;
  const TestSim sim(plan);
  ::setenv("LULL_SIM", sim.folder().c_str(), 1);
  const Library library(kLibrary);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  Device device = nullptr;
  const auto start = Clock::now();
  ASSERT_EQ(library.call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), kSuccess);
  Utilization util{};
  ASSERT_EQ(library.call("nvmlDeviceGetUtilizationRates", device, &util), kSuccess);
  EXPECT_EQ(util.gpu, 60U);
  while (util.gpu != 0 && Clock::now() < start + 10s) {
    ASSERT_EQ(library.call("nvmlDeviceGetUtilizationRates", device, &util), kSuccess);
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_EQ(util.gpu, 0U);
  EXPECT_GE(Clock::now() - start, 400ms);
  std::array<Sample, 72> ring{};
  unsigned type = 0;
  unsigned count = 72;
  ASSERT_EQ(library.call("nvmlDeviceGetSamples", device, 1, 0ULL, &type, &count, ring.data()), kSuccess);
  double sum = 0;
  for (unsigned i = 0; i < count; ++i) sum += ring[i].value.ui;
  EXPECT_NEAR(sum * 10 / 72, 60 * 0.4, 60.0 / 7.2 + 1);
  library.call("nvmlShutdown");
}

}  // namespace
