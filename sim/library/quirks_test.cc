// What real drivers and machines do that a kind one would not.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <thread>
#include <vector>

#include "sim/library/library_test.h"
#include "sim/opened.h"

namespace {

using namespace lull::sim;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// ---- the sample buffer ----------------------------------------------------------------------------

class Ring : public ::testing::Test {
 protected:
  int samples(const Plan& plan, unsigned& count, std::array<Sample, 240>& out) {
    TestSim sim(plan);
    ::setenv("LULL_SIM", sim.folder().c_str(), 1);
    const Library library(kLibrary);
    EXPECT_EQ(library.call("nvmlInit_v2"), kSuccess);
    Device device = nullptr;
    EXPECT_EQ(library.call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), kSuccess);
    EXPECT_TRUE(sim.writer().set({{0, Metric::util, 42}}));
    const auto limit = Clock::now() + 10s;
    unsigned type = 0;
    int result = kNotFound;
    do {
      count = 240;
      result = library.call("nvmlDeviceGetSamples", device, 1, 0ULL, &type, &count, out.data());
      Utilization util{};
      EXPECT_EQ(library.call("nvmlDeviceGetUtilizationRates", device, &util), kSuccess);
      EXPECT_EQ(util.gpu, 42U);
      std::this_thread::sleep_for(2ms);
    } while ((result != kSuccess || count < 4) && Clock::now() < limit && plan.gpus[0].gpu.quirks == 0);
    library.call("nvmlShutdown");
    return result;
  }
  unsigned count_ = 0;
  std::array<Sample, 240> out_{};
};

TEST_F(Ring, HasThePeriodAndRoomThatThePlanSays) {
  Plan plan = plan_of({"T4"});
  plan.sample_period_ns = 20'000'000;
  plan.sample_capacity = 4;
  ASSERT_EQ(samples(plan, count_, out_), kSuccess);
  EXPECT_EQ(count_, 4U);
  EXPECT_EQ(out_[3].timestamp - out_[2].timestamp, 20'000U);
}

TEST_F(Ring, CountsFromBootOrFrom1970) {
  Plan plan = plan_of({"T4"});
  plan.sample_period_ns = 20'000'000;
  ASSERT_EQ(samples(plan, count_, out_), kSuccess);
  EXPECT_NEAR(static_cast<double>(out_[count_ - 1].timestamp) / 1e6, static_cast<double>(boot_now_ns()) / 1e9, 2);
  plan.sample_epoch = true;
  ASSERT_EQ(samples(plan, count_, out_), kSuccess);
  EXPECT_NEAR(static_cast<double>(out_[count_ - 1].timestamp) / 1e6, static_cast<double>(std::time(nullptr)), 2);
}

TEST_F(Ring, MayBeDryThoughTheCardWorks) {
  Plan plan = plan_of({"T4"});
  plan.sample_period_ns = 5'000'000;
  plan.gpus[0].gpu.quirks = kSampleBufferDry;
  EXPECT_EQ(samples(plan, count_, out_), kNotFound);
}

// ---- faults of init -------------------------------------------------------------------------------

TEST(InitFaults, TakeEffectOnEachWayToInitialise) {
  const TestSim sim(std::vector<std::string>{"T4"});
  ::setenv("LULL_SIM", sim.folder().c_str(), 1);
  const Library library(kLibrary);
  auto writer = sim.writer();
  for (const std::int32_t gpu : {0, kEveryGpu, kWholeDriver}) {
    ASSERT_TRUE(writer.add_faults({fault_on(gpu, kUnknown, "nvmlInit*")}));
    EXPECT_EQ(library.call("nvmlInit_v2"), kUnknown);
    EXPECT_EQ(library.call("nvmlInit"), kUnknown);
    EXPECT_EQ(library.call("nvmlInitWithFlags", 0U), kUnknown);
    ASSERT_TRUE(writer.clear());
  }
  ASSERT_TRUE(writer.add_faults({fault_on(0, kUnknown, "nvmlInitWithFlags")}));
  EXPECT_EQ(library.call("nvmlInit_v2"), kSuccess);
  EXPECT_EQ(library.call("nvmlShutdown"), kSuccess);
  EXPECT_EQ(library.call("nvmlInitWithFlags", 0U), kUnknown);
  ASSERT_TRUE(writer.clear());
  ASSERT_TRUE(writer.add_faults({fault_on(0, 0, "nvmlInit_v2", 300'000'000)}));
  EXPECT_GE(seconds_of([&] { EXPECT_EQ(library.call("nvmlInit_v2"), kSuccess); }), 0.3);
  EXPECT_EQ(library.call("nvmlShutdown"), kSuccess);
}

TEST_F(OnSim, AGpuThatIsCountedMayBeForbidden) {
  ASSERT_TRUE(sim_.writer().add_faults({fault_on(1, 4, "nvmlDeviceGetHandleByIndex_v2")}));
  unsigned count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 4U);
  Device out = nullptr;
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", 1U, &out), 4);
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", 0U, &out), kSuccess);
}

// ---- models ---------------------------------------------------------------------------------------

class Odd : public OnSim {
 protected:
  static Plan plan() {
    Plan plan = plan_of({"GB10", "GH200", "Orin", "B200", "T4"});
    plan.gpus[4].gpu.quirks = kMemoryTotalZero | kNoUtil | kNoProcessLists | kDisplayActive;
    return plan;
  }
  Odd() : OnSim(plan()) {}
  int memory(unsigned gpu) { return library_.call("nvmlDeviceGetMemoryInfo", device(gpu), &memory_); }
  Memory memory_{};
};

TEST_F(Odd, UnifiedMemoryIsNotTold) {
  EXPECT_EQ(memory(0), kNotSupported);
  Memory2 second{};
  second.version = sizeof(Memory2) | (2U << 24);
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo_v2", device(0), &second), kNotSupported);
  unsigned limit = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetEnforcedPowerLimit", device(0), &limit), kNotSupported);
  EXPECT_EQ(library_.call("nvmlDeviceGetPowerManagementLimit", device(0), &limit), kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 0), 4'000U);
  device_[0] = device(0);
  EXPECT_EQ(util_result(0), kSuccess);
}

TEST_F(Odd, TheEnergyOfGraceHopperIsTheModules) {
  const auto energy = [&] {
    unsigned long long out = 0;
    EXPECT_EQ(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(1), &out), kSuccess);
    return static_cast<double>(out);
  };
  const double before = energy();
  const std::int64_t start = boot_now_ns();
  while (boot_now_ns() < start + 400'000'000) std::this_thread::sleep_for(5ms);
  const double watts = (energy() - before) / (static_cast<double>(boot_now_ns() - start) / 1e6);
  EXPECT_NEAR(watts, 250, 10);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 1), 90'000U);
  FieldValue field{};
  field.id = 185;
  ASSERT_EQ(library_.call("nvmlDeviceGetFieldValues", device(1), 1, &field), kSuccess);
  EXPECT_EQ(field.result, kSuccess);
  EXPECT_EQ(field.value.ui, 90'000U);
  field.scope = 1;
  ASSERT_EQ(library_.call("nvmlDeviceGetFieldValues", device(1), 1, &field), kSuccess);
  EXPECT_EQ(field.value.ui, 250'000U);
}

TEST_F(Odd, OrinTellsItsNameAndNothingElse) {
  char text[96];
  EXPECT_EQ(library_.call("nvmlDeviceGetName", device(2), text, 96U), kSuccess);
  EXPECT_STREQ(text, "Orin (nvgpu)");
  EXPECT_EQ(memory(2), kNotSupported);
  device_[2] = device(2);
  EXPECT_EQ(util_result(2), kNotSupported);
  unsigned out = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetPowerUsage", device_[2], &out), kNotSupported);
  EXPECT_EQ(library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device_[2], &out, static_cast<Process2*>(nullptr)),
            kNotSupported);
}

TEST_F(Odd, SomeDriversKnowNeitherUtilisationNorProcessesNorMemory) {
  EXPECT_EQ(memory(4), kSuccess);
  EXPECT_EQ(memory_.total, 0U);
  device_[4] = device(4);
  EXPECT_EQ(util_result(4), kNotSupported);
  unsigned out = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device_[4], &out, static_cast<Process2*>(nullptr)),
            kNotSupported);
  EXPECT_EQ(number("nvmlDeviceGetDisplayActive", 4), 1U);
  EXPECT_EQ(number("nvmlDeviceGetDisplayActive", 3), 0U);
}

// ---- nonsense, costs, MIG, holders ----------------------------------------------------------------

TEST_F(OnSim, AConfusedDriverAnswersNonsense) {
  ASSERT_TRUE(sim_.writer().add_faults({{.gpu = 0, .kind = FaultKind::garbage, .from_ns = -1}}));
  EXPECT_EQ(number("nvmlDeviceGetEnforcedPowerLimit", 0), 0xFFFFFFFFU);
  Memory memory{};
  EXPECT_EQ(library_.call("nvmlDeviceGetMemoryInfo", device(0), &memory), kSuccess);
  EXPECT_EQ(memory.total, ~0ULL);
  unsigned temperature = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetTemperature", device(0), 0, &temperature), kSuccess);
  EXPECT_EQ(temperature, 4'000'000'000U);
  std::array<Sample, 72> ring{};
  unsigned type = 0;
  unsigned count = 72;
  ASSERT_EQ(library_.call("nvmlDeviceGetSamples", device(0), 1, 0ULL, &type, &count, ring.data()), kSuccess);
  EXPECT_EQ(count, 72U);
  EXPECT_EQ(std::ranges::count_if(ring, [](const Sample& sample) { return sample.value.ui == 0; }), 1);
  EXPECT_EQ(std::ranges::count_if(ring, [](const Sample& sample) { return sample.value.ui <= 100; }), 1);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 1), 52'000U) << "the others are in their right mind";
}

TEST(Costs, AreUnderOneLockAndOutliveAKilledHolder) {
  Plan plan = plan_of({"T4", "T4"});
  plan.cost_ns[static_cast<unsigned>(Cost::lists)] = 100'000'000;
  plan.cost_ns[static_cast<unsigned>(Cost::fan)] = 50'000;
  TestSim sim(plan);
  ::setenv("LULL_SIM", sim.folder().c_str(), 1);
  const Library library(kLibrary);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  const auto list = [&](unsigned gpu) {
    Device device = nullptr;
    unsigned count = 0;
    EXPECT_EQ(library.call("nvmlDeviceGetHandleByIndex_v2", gpu, &device), kSuccess);
    EXPECT_EQ(library.call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, static_cast<Process2*>(nullptr)),
              kSuccess);
  };
  EXPECT_GE(seconds_of([&] {
              std::thread other([&] { list(1); });
              list(0);
              other.join();
            }),
            0.2);
  const pid_t child = ::fork();
  if (child == 0) {
    Mapping mapping;
    if (mapping.open(sim.folder().c_str()) == 0) ::pthread_mutex_lock(&mapping.writable_state().driver_lock);
    ::raise(SIGKILL);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  list(0);
  library.call("nvmlShutdown");
}

TEST(MigMode, IsSwitchedWhileItRuns) {
  Plan plan = plan_of({"A100"});
  ASSERT_TRUE(cut(plan.gpus[0].gpu, 0, {"3g.40gb", "1g.10gb"}));
  const TestSim sim(plan);
  ::setenv("LULL_SIM", sim.folder().c_str(), 1);
  const Library library(kLibrary);
  ASSERT_EQ(library.call("nvmlInit_v2"), kSuccess);
  Device device = nullptr;
  Device mig = nullptr;
  char uuid[96];
  Utilization util{};
  ASSERT_EQ(library.call("nvmlDeviceGetHandleByIndex_v2", 0U, &device), kSuccess);
  ASSERT_EQ(library.call("nvmlDeviceGetMigDeviceHandleByIndex", device, 1U, &mig), kSuccess);
  ASSERT_EQ(library.call("nvmlDeviceGetUUID", mig, uuid, 96U), kSuccess);
  const auto mode = [&] {
    unsigned current = 9;
    unsigned pending = 9;
    EXPECT_EQ(library.call("nvmlDeviceGetMigMode", device, &current, &pending), kSuccess);
    return current;
  };
  EXPECT_EQ(mode(), 1U);
  EXPECT_EQ(library.call("nvmlDeviceGetUtilizationRates", device, &util), kNotSupported);
  ASSERT_TRUE(sim.writer().set({{0, Metric::mig_mode, 0}}));
  EXPECT_EQ(mode(), 0U);
  EXPECT_EQ(library.call("nvmlDeviceGetUtilizationRates", device, &util), kSuccess);
  EXPECT_EQ(library.call("nvmlDeviceGetMigDeviceHandleByIndex", device, 1U, &mig), kNotFound);
  EXPECT_EQ(library.call("nvmlDeviceGetHandleByUUID", uuid, &mig), kNotFound);
  EXPECT_EQ(library.call("nvmlDeviceGetName", mig, uuid, 96U), kInvalidArgument);
  ASSERT_TRUE(sim.writer().set({{0, Metric::mig_mode, kDerive}}));
  EXPECT_EQ(library.call("nvmlDeviceGetMigDeviceHandleByIndex", device, 1U, &mig), kSuccess);
  library.call("nvmlShutdown");
}

TEST_F(OnSim, WhoHoldsACardIsKnownFromFindingItToShutdown) {
  Mapping mapping;
  ASSERT_EQ(mapping.open(sim_.folder().c_str()), 0);
  const auto pids = [&](unsigned gpu) {
    std::vector<std::uint32_t> found;
    for (const DeviceUser& holder : device_users(mapping, sim_.folder(), gpu)) found.push_back(holder.pid);
    return found;
  };
  const auto own = static_cast<std::uint32_t>(::getpid());
  EXPECT_TRUE(pids(1).empty()) << "init holds nothing";
  device_[1] = device(1);
  EXPECT_EQ(pids(1), std::vector{own});
  EXPECT_TRUE(pids(0).empty());
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    device_[0] = device(0);
    (void)!::write(ends[1], "x", 1);
    ::pause();
    ::_exit(0);
  }
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  EXPECT_EQ(pids(0), std::vector{static_cast<std::uint32_t>(child)});
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(pids(0).empty());
  EXPECT_EQ(library_.call("nvmlShutdown"), kSuccess);
  EXPECT_TRUE(pids(1).empty());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(OnSim, ProcessUtilisationIsPlausible) {
  auto writer = sim_.writer();
  const auto held = writer.hold(load_on(0, 70, 1 << 30));
  ASSERT_TRUE(held);
  struct ProcessSample {
    unsigned pid;
    unsigned long long timestamp;
    unsigned sm, memory, encoder, decoder;
  };
  std::array<ProcessSample, 8> out{};
  unsigned count = 8;
  int result = kNotFound;
  const auto limit = Clock::now() + 10s;
  while (result != kSuccess && Clock::now() < limit) {
    count = 8;
    result = library_.call("nvmlDeviceGetProcessUtilization", device(0), out.data(), &count, 0ULL);
    std::this_thread::sleep_for(2ms);
  }
  ASSERT_EQ(result, kSuccess);
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(out[0].pid, static_cast<unsigned>(::getpid()));
  EXPECT_EQ(out[0].sm, 70U);
  EXPECT_NEAR(static_cast<double>(out[0].timestamp) / 1e6, static_cast<double>(boot_now_ns()) / 1e9, 2);
  count = 8;
  const int again =
      library_.call("nvmlDeviceGetProcessUtilization", device(0), out.data(), &count, out[0].timestamp + 10'000'000);
  EXPECT_EQ(again, kNotFound) << "nothing newer";
}

TEST_F(OnSim, ProcessUtilisationListsOnlyWhoWorked) {
  auto writer = sim_.writer();
  const auto held = writer.hold(load_on(0, 0, 1 << 30));
  ASSERT_TRUE(held);
  const auto ask = [&](unsigned* count) {
    std::array<std::array<unsigned long long, 4>, 8> out{};
    return library_.call("nvmlDeviceGetProcessUtilization", device(0), out.data(), count, 0ULL);
  };
  const auto until = Clock::now() + 500ms;  // three samples of the driver's
  while (Clock::now() < until) {
    unsigned count = 8;
    ASSERT_EQ(ask(&count), kNotFound);
    EXPECT_EQ(count, 0U);
    std::this_thread::sleep_for(20ms);
  }
  const auto worked = writer.hold(load_on(0, 40, 1 << 30));
  ASSERT_TRUE(worked);
  int result = kNotFound;
  for (const auto limit = Clock::now() + 10s; result == kNotFound && Clock::now() < limit;) {
    unsigned count = 0;  // how many there are comes first
    result = ask(&count);
    if (result != kNotFound) {
      EXPECT_EQ(count, 1U);
    }
    std::this_thread::sleep_for(2ms);
  }
  EXPECT_EQ(result, kInsufficientSize);
}

// ---- other vendors ---------------------------------------------------------------------------------

class MixedMachine : public OnSim {
 protected:
  static Plan plan() {
    Plan plan = plan_of({"Orin", "MI210", "A770"});
    plan.gpus[0].gpu.quirks |= kNvmlZeros;
    return plan;
  }
  MixedMachine() : OnSim(plan()) {}
};

TEST_F(MixedMachine, HasInNvmlWhatIsNvidiasAlone) {
  unsigned count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(count, 1U);
  Device none = nullptr;
  EXPECT_EQ(library_.call("nvmlDeviceGetHandleByIndex_v2", 1U, &none), kInvalidArgument);
}

TEST_F(MixedMachine, AJetsonMayAnswerZerosAndProcessesThatAreNone) {
  ASSERT_TRUE(sim_.writer().set({{0, Metric::util, 80}, {0, Metric::power, 30}}));
  Utilization util{1, 1};
  EXPECT_EQ(library_.call("nvmlDeviceGetUtilizationRates", device(0), &util), kSuccess);
  EXPECT_EQ(util.gpu, 0U);
  EXPECT_EQ(number("nvmlDeviceGetPowerUsage", 0), 0U);
  unsigned count = 8;
  std::array<Process2, 8> processes{};
  EXPECT_EQ(library_.call("nvmlDeviceGetComputeRunningProcesses_v3", device(0), &count, processes.data()), kSuccess);
  EXPECT_EQ(count, 2U);
  std::uint64_t energy = 0;
  EXPECT_NE(library_.call("nvmlDeviceGetTotalEnergyConsumption", device(0), &energy), kSuccess);
}

TEST(MachineWithoutNvidia, HasNoDriver) {
  const TestSim sim({"MI210"});
  ::setenv("LULL_SIM", sim.folder().c_str(), 1);
  const Library library(kLibrary);
  EXPECT_EQ(library.call("nvmlInit_v2"), kDriverNotLoaded);
}

}  // namespace
