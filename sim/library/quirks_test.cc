// What real drivers and machines do that a kind one would not.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <thread>
#include <vector>

#include "sim/holders.h"
#include "sim/library/library_test.h"
#include "sim/machine.h"

namespace {

using namespace lull::sim;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

Fault fault_on(std::int32_t gpu, int code, const char* function = "", std::int64_t hang_ns = 0) {
  Fault fault{.gpu = gpu, .code = code, .hang_ns = hang_ns, .from_ns = -1};
  std::string(function).copy(fault.function, sizeof fault.function - 1);
  return fault;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Plan two_that_attach(std::int64_t attach_ns) {
  Plan plan = plan_of({"T4", "T4"});
  for (GpuPlan& gpu : plan.gpus) {
    gpu.gpu.attach_ns = attach_ns;
    gpu.gpu.persistence = 0;
  }
  return plan;
}

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

// ---- attaching ------------------------------------------------------------------------------------

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

// ---- the machine's files --------------------------------------------------------------------------

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Machine : public OnSim {
 protected:
  static Plan plan() {
    Plan plan = plan_of({"H100", "RTX 4090"});
    plan.gpus[1].gpu.begins_asleep = 1;
    return plan;
  }
  Machine() : OnSim(plan()) { EXPECT_TRUE(furnish_machine(sim_.folder(), plan())); }
  std::string status(unsigned gpu) const {
    const std::string place = gpu == 0 ? "0000:0b:00.0" : "0000:13:00.0";
    return text_of(sim_.folder() + "/sys/bus/pci/devices/" + place + "/power/runtime_status");
  }
};

TEST_F(Machine, HasTheFilesOfTheDriverAndTheCards) {
  const std::string device = sim_.folder() + "/sys/bus/pci/devices/0000:0b:00.0/";
  EXPECT_EQ(text_of(device + "vendor"), "0x10de\n");
  EXPECT_EQ(text_of(device + "class"), "0x030200\n");
  EXPECT_EQ(text_of(device + "device"), "0x2330\n");
  const std::string driver = sim_.folder() + "/proc/driver/nvidia/";
  EXPECT_NE(text_of(driver + "version").find("535.261.03"), std::string::npos);
  const std::string information = text_of(driver + "gpus/0000:13:00.0/information");
  for (const char* part : {"Model: \t\t NVIDIA GeForce RTX 4090\n", "GPU UUID: \t GPU-", "Device Minor: \t 1\n"})
    EXPECT_NE(information.find(part), std::string::npos) << information;
}

TEST_F(Machine, TheDriversVersionIsGoneWhileItIsNotLoaded) {
  const std::string file = sim_.folder() + "/proc/driver/nvidia/version";
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.add_faults({fault_on(kWholeDriver, kDriverNotLoaded)}));
  EXPECT_EQ(text_of(file), "");
  EXPECT_NE(::access(file.c_str(), F_OK), 0);
  ASSERT_TRUE(writer.clear());
  EXPECT_NE(text_of(file), "");
  ASSERT_EQ(::unlink(file.c_str()), 0);
  ASSERT_TRUE(writer.set({{0, Metric::util, 5}}));
  EXPECT_EQ(text_of(file), "") << "removed by hand, it stays away";
}

TEST_F(Machine, ACallWakesOnlyItsGpuAndInitNone) {
  unsigned count = 0;
  EXPECT_EQ(library_.call("nvmlDeviceGetCount_v2", &count), kSuccess);
  EXPECT_EQ(status(0), "active\n");
  EXPECT_EQ(status(1), "suspended\n");
  device_[0] = device(0);
  EXPECT_EQ(status(1), "suspended\n");
  device_[1] = device(1);
  EXPECT_EQ(status(1), "active\n") << "finding it wakes it";
  auto writer = sim_.writer();
  ASSERT_TRUE(writer.put_to_sleep(1, true));
  EXPECT_EQ(status(1), "suspended\n");
  EXPECT_EQ(util_result(0), kSuccess);
  EXPECT_EQ(status(1), "suspended\n");
  EXPECT_EQ(util_result(1), kSuccess);
  EXPECT_EQ(status(1), "active\n");
  ASSERT_TRUE(writer.put_to_sleep(1, true));
  ASSERT_TRUE(writer.put_to_sleep(1, false));
  EXPECT_EQ(status(1), "active\n");
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
    for (const Holder& holder : holders_of(mapping, sim_.folder(), gpu)) found.push_back(holder.pid);
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

}  // namespace
