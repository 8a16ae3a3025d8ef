// The simulated library as a program sees it that knows only NVML's public API.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <thread>

#include "sim/library/library_test.h"

namespace {

using namespace lull::sim;
using Clock = std::chrono::steady_clock;

// ---- what is there --------------------------------------------------------------------------------

TEST_F(OnSim, EveryPublicNameExistsAndNothingElseLeaks) {
  unsigned names = 0;
#define X(name)                                      \
  EXPECT_NE(library_.find(#name), nullptr) << #name; \
  ++names;
#include "sim/library/names.inc"
#undef X
  EXPECT_EQ(names, 332U);
  FILE* listing = ::popen(("nm -D --defined-only " + kLibrary).c_str(), "r");
  ASSERT_NE(listing, nullptr);
  char line[512];
  while (std::fgets(line, sizeof line, listing) != nullptr) {
    const char* name = std::strrchr(line, ' ');
    ASSERT_NE(name, nullptr);
    const std::string_view symbol(name + 1);
    EXPECT_TRUE(symbol.starts_with("nvml") || symbol.starts_with("__asan") || symbol.starts_with("__odr_asan") ||
                symbol.starts_with("__tsan"))
        << line;
  }
  ::pclose(listing);
}

TEST_F(OnSim, BothFileNamesAreThere) {
  EXPECT_TRUE(std::filesystem::exists(lull::build_dir() + "/sim/libnvidia-ml.so"));
}

TEST_F(OnSim, WhatIsNotSimulatedSaysSo) {
  EXPECT_EQ(library_.call("nvmlDeviceGetGpuFabricInfo", device(0), nullptr), kNotSupported);
  EXPECT_EQ(library_.call("nvmlDeviceSetPersistenceMode", device(0), 1), kNotSupported);
}

TEST_F(OnSim, IdentityIsWhatTheModelSays) {
  unsigned count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 4U);
  char text[96];
  EXPECT_EQ(library_.call("nvmlDeviceGetName", device(2), text, 96U), kSuccess);
  EXPECT_STREQ(text, "Tesla T4");
  EXPECT_EQ(library_.call("nvmlDeviceGetName", device(2), text, 5U), kInsufficientSize);
  EXPECT_EQ(library_.call("nvmlDeviceGetUUID", device(2), text, 96U), kSuccess);
  Device found = nullptr;
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByUUID", static_cast<const char*>(text), &found), kSuccess);
  EXPECT_EQ(found, device(2));
  Pci pci{};
  EXPECT_EQ(library_.call("nvmlDeviceGetPciInfo_v3", device(1), &pci), kSuccess);
  EXPECT_STREQ(pci.bus_id, "00000000:13:00.0");
  EXPECT_STREQ(pci.legacy, "0000:13:00.0");
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByPciBusId_v2", static_cast<const char*>("0:13:0.0"), &found), kSuccess);
  EXPECT_EQ(found, device(1));
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", 4U, &found), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByUUID", static_cast<const char*>("GPU-none"), &found), kNotFound);
  EXPECT_EQ(number("nvmlDeviceGetMinorNumber", 3), 3U);
}

TEST_F(OnSim, NonsenseIsRefused) {
  unsigned out = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetPowerUsage", static_cast<Device>(nullptr), &out), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlDeviceGetPowerUsage", static_cast<Device>(&out), &out), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlDeviceGetPowerUsage", device(0), static_cast<unsigned*>(nullptr)), kInvalidArgument);
  EXPECT_EQ(library_.call("nvmlDeviceGetTemperature", device(0), 7, &out), kInvalidArgument);
  Memory2 memory{};
  memory.version = 1;
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo_v2", device(0), &memory), kVersionMismatch);
}

// ---- readings ----------------------------------------------------------------------------------------

TEST_F(OnSim, WhatIsSetIsSeenAtOnce) {
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.set({{0, Metric::util, 35},
                          {0, Metric::power, 180},
                          {0, Metric::mem_used, 8.0 * (1ULL << 30)},
                          {0, Metric::temp, 60},
                          {0, Metric::clock, 1234},
                          {0, Metric::throttle, 4}}));
  Utilization util{};
  EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", device(0), &util), kSuccess);
  EXPECT_EQ(util.gpu, 35U);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 0), 180'000U);
  EXPECT_EQ(number("nvmlDeviceGetEnforcedPowerLimit", 0), 700'000U);
  unsigned out = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetTemperature", device(0), 0, &out), kSuccess);
  EXPECT_EQ(out, 60U);
  EXPECT_EQ(library_.call("nvmlDeviceGetClockInfo", device(0), 1, &out), kSuccess);
  EXPECT_EQ(out, 1234U);
  unsigned long long reasons = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetCurrentClocksThrottleReasons", device(0), &reasons), kSuccess);
  EXPECT_EQ(reasons, 4U);
  Memory memory{};
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo", device(0), &memory), kSuccess);
  EXPECT_EQ(memory.used, (8ULL << 30) + (516ULL << 20));
  EXPECT_EQ(memory.free + memory.used, memory.total);
  Memory2 second{};
  second.version = sizeof(Memory2) | (2U << 24);
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo_v2", device(0), &second), kSuccess);
  EXPECT_EQ(second.used, 8ULL << 30);
  EXPECT_EQ(second.reserved, 516ULL << 20);
  EXPECT_EQ(second.free, memory.free);
  // The others are as they were.
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 2), 9'000U);
}

TEST_F(OnSim, ACardWithoutAFanSaysSo) {
  unsigned out = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetFanSpeed", device(2), &out), kNotSupported);
  EXPECT_EQ(library_.call("nvmlDeviceGetFanSpeed", device(3), &out), kSuccess);
}

TEST_F(OnSim, TheSampleBufferFillsAndIsReadOnce) {
  unsigned type = 9;
  unsigned count = 0;
  const auto samples = [&](unsigned long long after, Sample* out) {
    return library_.call("nvmlDeviceGetSamples", device(0), 1, after, &type, &count, out);
  };
  EXPECT_EQ(samples(0, nullptr), kSuccess);
  EXPECT_EQ(count, 72U);
  std::array<Sample, 72> buffer{};
  EXPECT_EQ(samples(0, buffer.data()), kNotFound);  // nobody was there
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.set({{0, Metric::util, 42}}));
  int result = kNotFound;
  const auto limit = Clock::now() + std::chrono::seconds(10);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    count = 72;
    result = samples(0, buffer.data());
  } while ((result != kSuccess || count < 3) && Clock::now() < limit);
  ASSERT_EQ(result, kSuccess);
  EXPECT_EQ(type, 1U);
  EXPECT_EQ(buffer[count - 1].value.ui, 42U);
  EXPECT_NEAR(static_cast<double>(buffer[count - 1].timestamp - buffer[count - 2].timestamp), 138'889, 1);
  const unsigned long long last = buffer[count - 1].timestamp;
  count = 72;
  const int again = samples(last, buffer.data());
  EXPECT_TRUE(again == kNotFound || buffer[0].timestamp > last);
}

TEST_F(OnSim, EnergyGrowsByPower) {
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.set({{0, Metric::power, 500}}));
  unsigned long long first = 0;
  unsigned long long second = 0;
  const auto start = Clock::now();
  EXPECT_EQ(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(0), &first), kSuccess);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(0), &second), kSuccess);
  const double passed = std::chrono::duration<double>(Clock::now() - start).count();
  EXPECT_GE(second - first, 25'000U - 1);
  EXPECT_LE(static_cast<double>(second - first), 500e3 * passed + 1);
  FieldValue field{};
  field.id = 83;
  EXPECT_EQ(library_.call("nvmlDeviceGetFieldValues", device(0), 1, &field), kSuccess);
  EXPECT_EQ(field.result, kSuccess);
  EXPECT_GE(field.value.ull, second);
}

// ---- processes ------------------------------------------------------------------------------------------

TEST_F(OnSim, ListsOfAllVersionsKeepTheirStrides) {
  auto writer = sim_.writer();
  auto one = writer.hold(load_on(0, 20, 100 << 20, kCompute));
  ASSERT_TRUE(one) << one.error().message();
  const auto pid = static_cast<unsigned>(::getpid());
  unsigned count = 0;
  EXPECT_EQ(
      library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device(0), &count, static_cast<Process2*>(nullptr)),
      kInsufficientSize);
  EXPECT_EQ(count, 1U);
  std::array<Process1, 3> first{};
  std::array<Process2, 3> second{};
  count = 3;
  EXPECT_EQ(library_.call("nvmlDeviceGetComputeRunningProcesses", device(0), &count, first.data()), kSuccess);
  EXPECT_EQ(count, 1U);
  EXPECT_EQ(first[0].pid, pid);
  EXPECT_EQ(first[0].memory, 100U << 20);
  EXPECT_EQ(first[1].pid, 0U);
  for (const char* name : {"nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3"}) {
    count = 3;
    second = {};
    EXPECT_EQ(library_.call(name, device(0), &count, second.data()), kSuccess);
    EXPECT_EQ(second[0].pid, pid);
    EXPECT_EQ(second[0].gpu_instance, 0xFFFFFFFFU);
  }
  count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetGraphicsRunningProcesses_v3", device(0), &count, second.data()), kSuccess);
  EXPECT_EQ(count, 0U);
  one->release();
  count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device(0), &count, second.data()), kSuccess);
  EXPECT_EQ(count, 0U);
}

TEST_F(OnSim, ALoadIsGoneTheMomentItIsKilled) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = sim_.writer();
    auto held = writer.hold(load_on(1, 90, 1 << 30));
    (void)!::write(ready[1], held ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ASSERT_EQ(answer, 'y');
  Utilization util{};
  EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", device(1), &util), kSuccess);
  EXPECT_EQ(util.gpu, 90U);
  unsigned long long before = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(1), &before), kSuccess);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  unsigned count = 0;
  EXPECT_EQ(
      library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device(1), &count, static_cast<Process2*>(nullptr)),
      kSuccess);
  EXPECT_EQ(count, 0U);
  EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", device(1), &util), kSuccess);
  EXPECT_EQ(util.gpu, 0U);
  Memory memory{};
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo", device(1), &memory), kSuccess);
  EXPECT_EQ(memory.used, 834ULL << 20) << "the driver's own";
  unsigned long long after = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(1), &after), kSuccess);
  EXPECT_GE(after, before);
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST_F(OnSim, DeathsAreWrittenDownThoughNobodyLooks) {
  int stop[2];
  ASSERT_EQ(::pipe(stop), 0);
  std::thread watcher([&] {
    auto writer = sim_.writer();
    EXPECT_TRUE(writer.watch_deaths(stop[0]));
  });
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto writer = sim_.writer();
    auto held = writer.hold(load_on(1, 90));
    (void)!::write(ready[1], held ? "y" : "n", 1);
    for (;;) ::pause();
  }
  char answer = 0;
  ASSERT_EQ(::read(ready[0], &answer, 1), 1);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  auto writer = sim_.writer();
  const std::int64_t died = writer.mapping().now_ns();
  const auto limit = Clock::now() + std::chrono::seconds(10);
  std::int64_t ended = 0;
  while (ended == 0 && Clock::now() < limit) {
    ended = writer.state().cells[0].ended_ns.load();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_NE(ended, 0);
  EXPECT_LT(ended - died, 5'000'000'000);
  (void)!::write(stop[1], "x", 1);
  watcher.join();
  for (const int fd : {stop[0], stop[1], ready[0], ready[1]}) ::close(fd);
}

}  // namespace
