// The simulated library as a program sees it that knows only NVML's public API.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "sim/library/public_api.h"
#include "sim/testing.h"

namespace {

using namespace public_api;
using namespace lull::sim;
using Clock = std::chrono::steady_clock;

const std::string kLibrary = std::string(LULL_BUILD_DIR) + "/sim/libnvidia-ml.so.1";

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
  EXPECT_TRUE(std::filesystem::exists(std::string(LULL_BUILD_DIR) + "/sim/libnvidia-ml.so"));
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
  EXPECT_EQ(memory.used, 8ULL << 30);
  EXPECT_EQ(memory.free + memory.used, memory.total);
  Memory2 second{};
  second.version = sizeof(Memory2) | (2U << 24);
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo_v2", device(0), &second), kSuccess);
  EXPECT_EQ(second.used, 8ULL << 30);
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
  EXPECT_EQ(count, 120U);
  std::array<Sample, 120> buffer{};
  EXPECT_EQ(samples(0, buffer.data()), kNotFound);  // nobody was there
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.set({{0, Metric::util, 42}}));
  int result = kNotFound;
  const auto limit = Clock::now() + std::chrono::seconds(10);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    count = 120;
    result = samples(0, buffer.data());
  } while ((result != kSuccess || count < 3) && Clock::now() < limit);
  ASSERT_EQ(result, kSuccess);
  EXPECT_EQ(type, 1U);
  EXPECT_EQ(buffer[count - 1].value.ui, 42U);
  EXPECT_NEAR(static_cast<double>(buffer[count - 1].timestamp - buffer[count - 2].timestamp), 166'667, 1);
  const unsigned long long last = buffer[count - 1].timestamp;
  count = 120;
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
  EXPECT_EQ(memory.used, 0U);
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

// ---- faults -------------------------------------------------------------------------------------------------

TEST_F(OnSim, AFaultCostsOnlyItsGpuAndGoes) {
  auto writer = sim_.writer();
  for (unsigned i = 0; i < 4; ++i) device_[i] = device(i);
  for (const int code : {kGpuIsLost, kResetRequired, kUnknown}) {
    ASSERT_TRUE(writer.add_faults({{.gpu = 1, .code = code, .from_ns = -1}}));
    EXPECT_EQ(util_result(1), code);
    EXPECT_EQ(util_result(0), kSuccess);
    Device out = nullptr;
    EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", 1U, &out), code);
    EXPECT_EQ(library_.call("nvmlDeviceGetSupportedVgpus", device_[1], nullptr, nullptr), code);
    ASSERT_TRUE(writer.clear_faults(kEveryGpu));
    EXPECT_EQ(util_result(1), kSuccess);
  }
  ASSERT_TRUE(writer.add_faults({{.gpu = 2, .kind = FaultKind::no_util, .from_ns = -1}}));
  EXPECT_EQ(util_result(2), kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 2), 9'000U);
}

TEST_F(OnSim, ADriverThatGoesAwayMustBeInitialisedAgain) {
  auto writer = sim_.writer();
  device_[0] = device(0);
  ASSERT_TRUE(writer.add_faults({{.gpu = kWholeDriver, .code = kDriverNotLoaded, .from_ns = -1}}));
  EXPECT_EQ(util_result(0), kDriverNotLoaded);
  EXPECT_EQ(library_.call("nvmlInit_v2"), kDriverNotLoaded);
  ASSERT_TRUE(writer.clear_faults(kEveryGpu));
  EXPECT_EQ(util_result(0), kUninitialized);
  EXPECT_EQ(library_.call("nvmlInit_v2"), kSuccess);
  EXPECT_EQ(util_result(0), kSuccess);
  ASSERT_TRUE(writer.add_faults({{.gpu = kWholeDriver, .code = kMismatch, .from_ns = -1}}));
  EXPECT_EQ(util_result(0), kMismatch);
  EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(library_.call("nvmlInitWithFlags", 0U), kMismatch);
}

TEST_F(OnSim, AHangTakesItsTime) {
  auto writer = sim_.writer();
  device_[0] = device(0);
  ASSERT_TRUE(writer.add_faults({{.gpu = 0, .hang_ns = 200'000'000, .from_ns = -1}}));
  const auto start = Clock::now();
  EXPECT_EQ(util_result(0), kSuccess);
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200));
}

TEST_F(OnSim, NoOtherCallWaitsForOneThatHangs) {
  auto writer = sim_.writer();
  for (unsigned i = 0; i < 2; ++i) device_[i] = device(i);
  ASSERT_TRUE(writer.add_faults({{.gpu = 0, .hang_ns = 600'000'000'000, .from_ns = -1}}));
  std::atomic<bool> returned{false};
  std::thread hanging([&] {
    util_result(0);
    returned = true;
  });
  for (int i = 0; i < 100; ++i) EXPECT_EQ(util_result(1), kSuccess);
  EXPECT_FALSE(returned);
  ASSERT_TRUE(writer.clear_faults(0));
  hanging.join();
}

TEST_F(OnSim, AHangEndsWhenItsFaultIsCleared) {
  auto writer = sim_.writer();
  device_[0] = device(0);
  ASSERT_TRUE(writer.add_faults({{.gpu = 0, .hang_ns = 600'000'000'000, .from_ns = -1}}));
  std::thread hanging([&] { EXPECT_EQ(util_result(0), kSuccess); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  // Shut down under the call that hangs: neither waits for the other, nothing is pulled away.
  EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(library_.call("nvmlInit_v2"), kSuccess);
  ASSERT_TRUE(writer.clear_faults(0));
  hanging.join();
}

TEST_F(OnSim, SignalsDoNotCutAHangShort) {
  struct sigaction old{};
  struct sigaction action{};
  action.sa_handler = [](int) {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);
  auto writer = sim_.writer();
  device_[0] = device(0);
  ASSERT_TRUE(writer.add_faults({{.gpu = 0, .hang_ns = 200'000'000, .from_ns = -1}}));
  const auto start = Clock::now();
  std::thread hanging([&] { util_result(0); });
  for (int i = 0; i < 10; ++i) {
    ::pthread_kill(hanging.native_handle(), SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  hanging.join();
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200));
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(OnSim, TheEndOfTheSimulationIsTheEndOfTheDriver) {
  device_[0] = device(0);
  sim_.writer().close_simulation();
  EXPECT_EQ(util_result(0), kDriverNotLoaded);
  EXPECT_EQ(library_.call("nvmlInit_v2"), kDriverNotLoaded);
}

// ---- starting and stopping -----------------------------------------------------------------------------------

TEST_F(OnSim, InitIsCounted) {
  device_[0] = device(0);
  EXPECT_EQ(library_.call("nvmlInit"), kSuccess);
  EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(util_result(0), kSuccess);
  EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(util_result(0), kUninitialized);
  EXPECT_EQ(library_.call("nvmlShutdown"), kUninitialized);
}

TEST_F(OnSim, WithoutASimulationThereIsNoDriver) {
  EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
  ::unsetenv("LULL_SIM");
  EXPECT_EQ(library_.call("nvmlInit_v2"), kDriverNotLoaded);
  ::setenv("LULL_SIM", "/nonexistent", 1);
  EXPECT_EQ(library_.call("nvmlInit_v2"), kDriverNotLoaded);
  std::ofstream(sim_.folder() + "/state") << "not a state";
  ::setenv("LULL_SIM", sim_.folder().c_str(), 1);
  EXPECT_EQ(library_.call("nvmlInit_v2"), kDriverNotLoaded);
}

TEST_F(OnSim, AForkedChildGoesOn) {
  device_[0] = device(0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool good = util_result(0) == kSuccess && library_.call("nvmlShutdown") == kSuccess &&
                      util_result(0) == kUninitialized && library_.call("nvmlInit_v2") == kSuccess &&
                      util_result(0) == kSuccess;
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(util_result(0), kSuccess);
}

TEST_F(OnSim, CallsAreLoggedByClient) {
  // A copy of the file is another library to the loader: it looks at the environment anew.
  const std::string copy = sim_.folder() + "/copy.so";
  std::filesystem::copy_file(kLibrary, copy);
  const std::string log = sim_.folder() + "/calls";
  ::setenv("LULL_SIM_LOG", log.c_str(), 1);
  {
    const Library other(copy);
    ASSERT_EQ(other.call("nvmlInit_v2"), kSuccess);
    Device out = nullptr;
    other.call("nvmlDeviceGetHandleByIndex_v2", 2U, &out);
    unsigned fan = 0;
    other.call("nvmlDeviceGetFanSpeed", out, &fan);
    other.call("nvmlShutdown");
  }
  std::ifstream file(log);
  std::string line;
  std::vector<std::string> lines;
  while (std::getline(file, line)) lines.push_back(line);
  const std::string pid = std::to_string(::getpid());
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_EQ(lines[0], pid + " nvmlInit_v2 - 0");
  EXPECT_EQ(lines[2], pid + " nvmlDeviceGetFanSpeed 2 3");
  EXPECT_EQ(lines[3], pid + " nvmlShutdown - 0");
}

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
