// What a program meets when the simulated driver fails, hangs, goes and comes back.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "sim/library/library_test.h"

namespace {

using namespace lull::sim;
using Clock = std::chrono::steady_clock;

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

}  // namespace
