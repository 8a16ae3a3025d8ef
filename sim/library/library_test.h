#pragma once
// For tests of the simulated library: the library, loaded, in a simulation of its own.
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>

#include "sim/library/public_api.h"
#include "sim/testing.h"
#include "tests/places.h"

namespace lull::sim {

using namespace public_api;

inline const std::string kLibrary = build_dir() + "/sim/libnvidia-ml.so.1";

inline Fault fault_on(std::int32_t gpu, int code, const char* function = "", std::int64_t hang_ns = 0) {
  Fault fault{.gpu = gpu, .code = code, .hang_ns = hang_ns, .from_ns = -1};
  std::string(function).copy(fault.function, sizeof fault.function - 1);
  return fault;
}

inline double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

class OnSim : public ::testing::Test {
 protected:
  explicit OnSim(const Plan& plan) : sim_(plan), library_(kLibrary) {
    ::setenv("LULL_SIM", sim_.folder().c_str(), 1);
    ::unsetenv("LULL_SIM_LOG");
  }
  OnSim() : OnSim(plan_of({"H100", "A100", "T4", "RTX 4090"})) {}
  void SetUp() override { ASSERT_EQ(library_.call("nvmlInit_v2"), kSuccess); }
  void TearDown() override {
    while (library_.call("nvmlShutdown") == kSuccess) {
    }
  }

  Device device(unsigned index) {
    Device out = nullptr;
    EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", index, &out), kSuccess);
    return out;
  }
  unsigned number(const char* function, unsigned index) {
    unsigned out = 0;
    EXPECT_EQ(library_.call(function, device(index), &out), kSuccess) << function;
    return out;
  }
  int util_result(unsigned index) {
    Utilization out{};
    return library_.call("nvmlDeviceGetUtilizationRates", device_[index], &out);
  }

  TestSim sim_;
  Library library_;
  std::array<Device, 8> device_{};
};

}  // namespace lull::sim
