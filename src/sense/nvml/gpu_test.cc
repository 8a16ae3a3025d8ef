// The sensor against a driver made of plain functions: what no simulator should
// do, a driver somewhere does.
#include "sense/nvml/gpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

namespace lull {
namespace {

using nvml::Return;

// What the fake driver says. One test at a time, one thread: a global will do.
struct Driver {
  Return everything = Return::success;
  Return util = Return::success;
  unsigned util_percent = 40;
  unsigned mem_util_percent = 7;
  Return samples = Return::not_found;
  std::vector<std::pair<unsigned long long, unsigned>> buffer;
  unsigned long long asked_since = 0;
  Return fan = Return::success;
  Return energy = Return::success;
  unsigned long long millijoules = 1000;
  std::vector<nvml::Process> compute;
  std::vector<nvml::Process> graphics;
  std::vector<nvml::Process> shared;
  std::vector<nvml::ProcessV1> old_compute;
  Return mig_mode = Return::not_supported;
  unsigned mig_count = 0;
  Return mig_memory = Return::success;
  unsigned calls = 0;
};
Driver driver;

// NOLINTNEXTLINE(performance-no-int-to-ptr): a handle is any pointer that the driver made up
nvml::Device handle(unsigned number) { return reinterpret_cast<nvml::Device>(std::uintptr_t{0x1000} + number); }
unsigned mig_number(nvml::Device device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device) -
                               reinterpret_cast<std::uintptr_t>(handle(100)));
}
bool is_mig(nvml::Device device) { return device >= handle(100); }

template <class Entry>
Return give(const std::vector<Entry>& list, unsigned* count, Entry* out) {
  ++driver.calls;
  if (driver.everything != Return::success) return driver.everything;
  const unsigned room = *count;
  *count = static_cast<unsigned>(list.size());
  if (room < list.size()) return Return::insufficient_size;
  std::ranges::copy(list, out);
  return Return::success;
}

Return number(unsigned* out, unsigned value, Return code = Return::success) {
  ++driver.calls;
  if (driver.everything != Return::success) return driver.everything;
  if (code == Return::success) *out = value;
  return code;
}

Return text(char* out, unsigned length, const std::string& value) {
  if (driver.everything != Return::success) return driver.everything;
  std::strncpy(out, value.c_str(), length);
  return Return::success;
}

Return fake_samples(nvml::Device, unsigned, unsigned long long since, unsigned* type, unsigned* count,
                    nvml::Sample* out) {
  driver.asked_since = since;
  if (driver.samples != Return::success) return driver.samples;
  unsigned filled = 0;
  for (const auto& [at, value] : driver.buffer) {
    if (at <= since) continue;
    out[filled].timestamp = at;
    out[filled++].value.ui = value;
  }
  *type = nvml::kValueUint;
  *count = filled;
  return filled == 0 ? Return::not_found : Return::success;
}

NvmlCalls table() {
  NvmlCalls calls;
  calls.DeviceGetHandleByIndex_v2 = [](unsigned index, nvml::Device* device) {
    if (driver.everything != Return::success) return driver.everything;
    *device = handle(index);
    return Return::success;
  };
  calls.DeviceGetUUID = [](nvml::Device device, char* out, unsigned length) {
    return text(out, length, is_mig(device) ? "MIG-" + std::to_string(mig_number(device)) : "GPU-7");
  };
  calls.DeviceGetName = [](nvml::Device, char* out, unsigned length) { return text(out, length, "Fake"); };
  calls.DeviceGetMinorNumber = [](nvml::Device, unsigned* out) { return number(out, 3); };
  calls.DeviceGetUtilizationRates = [](nvml::Device device, nvml::Utilization* out) {
    ++driver.calls;
    if (driver.everything != Return::success) return driver.everything;
    if (is_mig(device)) return Return::not_supported;
    *out = {driver.util_percent, driver.mem_util_percent};
    return driver.util;
  };
  calls.DeviceGetSamples = fake_samples;
  calls.DeviceGetMemoryInfo = [](nvml::Device device, nvml::Memory* out) {
    ++driver.calls;
    if (driver.everything != Return::success) return driver.everything;
    *out = {100, 60, 40};
    return is_mig(device) ? driver.mig_memory : Return::success;
  };
  calls.DeviceGetPowerUsage = [](nvml::Device, unsigned* out) { return number(out, 55'500); };
  calls.DeviceGetEnforcedPowerLimit = [](nvml::Device, unsigned* out) { return number(out, 300'000); };
  calls.DeviceGetTotalEnergyConsumption = [](nvml::Device, unsigned long long* out) {
    ++driver.calls;
    *out = driver.millijoules;
    return driver.everything != Return::success ? driver.everything : driver.energy;
  };
  calls.DeviceGetTemperature = [](nvml::Device, unsigned, unsigned* out) { return number(out, 61); };
  calls.DeviceGetFanSpeed = [](nvml::Device, unsigned* out) { return number(out, 30, driver.fan); };
  calls.DeviceGetClockInfo = [](nvml::Device, unsigned type, unsigned* out) {
    return number(out, type == nvml::kClockSm ? 1500 : 900);
  };
  calls.DeviceGetPerformanceState = [](nvml::Device, unsigned* out) { return number(out, 32); };  // "unknown"
  calls.DeviceGetCurrentClocksThrottleReasons = [](nvml::Device, unsigned long long* out) {
    *out = 4;
    return driver.everything;
  };
  calls.DeviceGetComputeRunningProcesses_v3 = [](nvml::Device, unsigned* count, nvml::Process* out) {
    return give(driver.compute, count, out);
  };
  calls.DeviceGetGraphicsRunningProcesses_v3 = [](nvml::Device, unsigned* count, nvml::Process* out) {
    return give(driver.graphics, count, out);
  };
  calls.DeviceGetMPSComputeRunningProcesses_v3 = [](nvml::Device, unsigned* count, nvml::Process* out) {
    return give(driver.shared, count, out);
  };
  calls.DeviceGetMigMode = [](nvml::Device, unsigned* current, unsigned*) {
    *current = nvml::kMigEnabled;
    return driver.mig_mode;
  };
  calls.DeviceGetMaxMigDeviceCount = [](nvml::Device, unsigned* out) { return number(out, 7); };
  calls.DeviceGetMigDeviceHandleByIndex = [](nvml::Device, unsigned index, nvml::Device* out) {
    *out = handle(100 + index);
    return index < driver.mig_count ? Return::success : Return::not_found;
  };
  calls.DeviceGetGpuInstanceId = [](nvml::Device device, unsigned* out) { return number(out, mig_number(device) + 7); };
  return calls;
}

class NvmlValues : public testing::Test {
 protected:
  void SetUp() override { driver = {}; }
  const Reading& sample() {
    sample_gpu(calls_, gpu_, wanted_, SystemClock().now(), room_, answer_);
    return answer_.gpu;
  }
  NvmlCalls calls_ = table();
  NvmlGpu gpu_{0};
  Wanted wanted_;
  NvmlRoom room_;
  NvmlAnswer answer_;
};

TEST_F(NvmlValues, EveryValueWithItsUnit) {
  const Reading& reading = sample();
  EXPECT_EQ(gpu_.device.uuid, "GPU-7");
  EXPECT_EQ(gpu_.device.minor, 3U);
  EXPECT_EQ(reading.device_absence, Absence::none);
  EXPECT_EQ(reading[Metric::util], 40);
  EXPECT_EQ(reading.util_basis, Basis::instant);
  EXPECT_EQ(reading[Metric::mem_util], 7);
  EXPECT_EQ(reading[Metric::mem_used], 40);
  EXPECT_EQ(reading[Metric::mem_free], 60);
  EXPECT_EQ(reading[Metric::mem_total], 100);
  EXPECT_DOUBLE_EQ(reading[Metric::power], 55.5);
  EXPECT_EQ(reading.power_basis, Basis::instant);
  EXPECT_DOUBLE_EQ(reading[Metric::power_limit], 300);
  EXPECT_EQ(reading.energy_joules, 1.0);
  EXPECT_EQ(reading[Metric::temp], 61);
  EXPECT_EQ(reading[Metric::clock], 1500);
  EXPECT_EQ(reading.mem_clock_mhz, 900);
  EXPECT_EQ(reading[Metric::fan], 30);
  EXPECT_EQ(reading.why_missing(Metric::pstate), Absence::failed) << "32 is NVML's word for unknown";
  EXPECT_EQ(reading.throttle_reasons, 4U) << "the old name of the call serves as well";
  EXPECT_EQ(reading[Metric::procs], 0);
  EXPECT_EQ(reading.why_missing(Metric::pcie), Absence::not_asked);
  EXPECT_EQ(reading.mig_mode, std::nullopt);
}

TEST_F(NvmlValues, OnlyWhatIsWantedIsAskedFor) {
  sample();
  const unsigned before = driver.calls;
  wanted_ = {.memory = false, .power = false, .details = false, .tenants = false, .pcie = false, .once = true};
  const Reading& reading = sample();
  EXPECT_EQ(driver.calls, before + 1) << "utilisation, and nothing else";
  EXPECT_EQ(reading.why_missing(Metric::power), Absence::not_asked);
  EXPECT_EQ(reading.tenants, std::nullopt);
  EXPECT_EQ(reading.device_absence, Absence::none);
}

TEST_F(NvmlValues, AValueThatFailsCostsOnlyItself) {
  driver.fan = Return::not_supported;
  driver.util = Return::not_supported;
  calls_.DeviceGetTemperature = nullptr;
  const Reading& reading = sample();
  EXPECT_EQ(reading.why_missing(Metric::fan), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::util), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::mem_util), Absence::not_supported);
  EXPECT_EQ(reading.why_missing(Metric::temp), Absence::no_symbol);
  EXPECT_EQ(reading.util_basis, Basis::unknown);
  EXPECT_EQ(reading[Metric::clock], 1500);
  EXPECT_EQ(reading.device_absence, Absence::none);
}

TEST_F(NvmlValues, NonsenseIsUnknown) {
  driver.util_percent = 37100;
  EXPECT_EQ(sample().why_missing(Metric::util), Absence::failed);
  driver.util_percent = 40;
  driver.mem_util_percent = 37100;
  const Reading& memory = sample();
  EXPECT_EQ(memory[Metric::util], 40);
  EXPECT_EQ(memory.why_missing(Metric::mem_util), Absence::failed);
}

TEST_F(NvmlValues, AnEmptyLibraryIsNoGpuButNoCrash) {
  calls_ = NvmlCalls();
  EXPECT_EQ(sample().device_absence, Absence::no_symbol);
}

TEST_F(NvmlValues, ALostGpuIsLostAsAWholeAndComesBack) {
  sample();
  for (const auto& [code, absence] : std::map<Return, Absence>{{Return::gpu_is_lost, Absence::lost},
                                                               {Return::reset_required, Absence::reset_required},
                                                               {Return::unknown, Absence::failed}}) {
    driver.everything = code;
    EXPECT_EQ(sample().device_absence, absence);
    EXPECT_EQ(answer_.gpu.why_missing(Metric::util), absence);
    EXPECT_EQ(answer_.gpu.tenants, std::nullopt);
    EXPECT_FALSE(answer_.driver_gone);
    driver.everything = Return::success;
    EXPECT_EQ(sample()[Metric::util], 40);
    EXPECT_EQ(answer_.gpu.device_absence, Absence::none);
  }
}

TEST_F(NvmlValues, LostBeforeAnythingWasReadOfIt) {
  driver.everything = Return::gpu_is_lost;
  EXPECT_EQ(sample().device_absence, Absence::lost);
  EXPECT_EQ(gpu_.device.absence, Absence::lost);
  EXPECT_EQ(gpu_.device.uuid, "");
  driver.everything = Return::success;
  EXPECT_EQ(sample().device_absence, Absence::none);
  EXPECT_EQ(gpu_.device.uuid, "GPU-7");
  EXPECT_EQ(gpu_.device.absence, Absence::none);
}

TEST_F(NvmlValues, ADriverThatIsGoneIsToldApart) {
  sample();
  for (const Return code : {Return::uninitialized, Return::driver_not_loaded, Return::lib_rm_version_mismatch}) {
    driver.everything = code;
    sample();
    EXPECT_TRUE(answer_.driver_gone);
  }
}

TEST_F(NvmlValues, UtilIsTheMeanOfTheBufferFromTheSecondSampleOn) {
  driver.samples = Return::success;
  driver.buffer = {{1000, 100}, {2000, 100}};
  EXPECT_EQ(sample().util_basis, Basis::instant) << "there is no previous sample";
  driver.buffer.insert(driver.buffer.end(), {{3000, 90}, {4000, 0}});
  const Reading& second = sample();
  EXPECT_EQ(driver.asked_since, 2000U);
  EXPECT_EQ(second.util_basis, Basis::mean);
  EXPECT_DOUBLE_EQ(second[Metric::util], 45);
  EXPECT_GT(second.util_coverage, 0);
  EXPECT_LE(second.util_coverage, 1);
  EXPECT_EQ(sample().util_basis, Basis::instant) << "dry: the moment decides";
  EXPECT_EQ(answer_.gpu[Metric::util], 40);
}

TEST_F(NvmlValues, WhatComesIntoAnEmptyBufferCameSinceWeLooked) {
  sample();  // not found
  driver.samples = Return::success;
  driver.buffer = {{1000, 100}, {2000, 50}};
  EXPECT_EQ(sample().util_basis, Basis::mean);
  EXPECT_DOUBLE_EQ(answer_.gpu[Metric::util], 75);
}

TEST_F(NvmlValues, ABufferWhoseClockWasSetBackIsFoundAgain) {
  driver.samples = Return::success;
  driver.buffer = {{9'000'000, 100}};
  sample();
  driver.buffer = {{5000, 80}};  // older than what was seen: never found again by that
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(sample().util_basis, Basis::instant);
    gpu_.memory.util_at -= std::chrono::seconds(1);  // a second later
  }
  sample();
  sample();
  driver.buffer.emplace_back(6000, 20);
  EXPECT_EQ(sample().util_basis, Basis::mean);
  EXPECT_DOUBLE_EQ(answer_.gpu[Metric::util], 20);
}

TEST_F(NvmlValues, ABufferWithoutRatesIsStillUtil) {
  driver.samples = Return::success;
  driver.util = Return::not_supported;
  driver.buffer = {{1000, 10}};
  EXPECT_EQ(sample().why_missing(Metric::util), Absence::not_supported);
  driver.buffer.emplace_back(2000, 10);
  EXPECT_EQ(sample()[Metric::util], 10);
  EXPECT_EQ(sample().why_missing(Metric::util), Absence::not_supported) << "dry, and no rate: unknown, not the last";
}

TEST_F(NvmlValues, PowerIsTheMeanOfTheEnergyCounter) {
  sample();
  std::this_thread::sleep_for(std::chrono::milliseconds(110));  // the shortest time that has a mean
  driver.millijoules += 1'000'000 / 8;
  const Reading& second = sample();
  EXPECT_EQ(second.power_basis, Basis::mean);
  EXPECT_GT(second[Metric::power], 100);
  EXPECT_LT(second[Metric::power], 1200);
  driver.millijoules = 5;  // the driver was loaded anew
  EXPECT_EQ(sample().power_basis, Basis::instant);
  EXPECT_DOUBLE_EQ(answer_.gpu[Metric::power], 55.5);
  driver.energy = Return::not_supported;
  EXPECT_EQ(sample().power_basis, Basis::instant);
  EXPECT_EQ(answer_.gpu.energy_joules, std::nullopt);
}

nvml::Process process(unsigned pid, unsigned long long memory, unsigned instance = nvml::kNoInstance) {
  return {pid, memory, instance, nvml::kNoInstance};
}

TEST_F(NvmlValues, TenantsOfAllListsOnceEach) {
  driver.compute = {process(10, 100), process(11, nvml::kValueNotAvailable)};
  driver.shared = {process(12, 300)};
  driver.graphics = {process(10, 500), process(13, 50)};
  const Reading& reading = sample();
  ASSERT_TRUE(reading.tenants);
  ASSERT_EQ(reading.tenants->size(), 4U);
  const auto& tenants = *reading.tenants;
  EXPECT_TRUE(tenants[0].compute && tenants[0].graphics);
  EXPECT_EQ(tenants[0].memory_bytes, 500U);
  EXPECT_EQ(tenants[1].memory_bytes, std::nullopt);
  EXPECT_TRUE(tenants[2].compute);
  EXPECT_FALSE(tenants[3].compute);
  EXPECT_EQ(reading[Metric::procs], 3) << "those with a compute context";
}

TEST_F(NvmlValues, ALongListAndTheOldLists) {
  for (unsigned pid = 1; pid <= 500; ++pid) driver.compute.push_back(process(pid, pid));
  EXPECT_EQ(sample()[Metric::procs], 500);
  calls_.DeviceGetComputeRunningProcesses_v3 = nullptr;
  EXPECT_EQ(sample().why_missing(Metric::procs), Absence::no_symbol);
  EXPECT_EQ(answer_.gpu.tenants, std::nullopt) << "could not look: not an empty list";
  calls_.DeviceGetComputeRunningProcesses = [](nvml::Device, unsigned* count, nvml::ProcessV1* out) {
    return give(driver.old_compute, count, out);
  };
  driver.old_compute = {{77, 1000}, {78, 2000}};
  EXPECT_EQ(sample()[Metric::procs], 2);
  EXPECT_EQ((*answer_.gpu.tenants)[1].memory_bytes, 2000U);
}

TEST_F(NvmlValues, MigDevicesAreDevicesOfTheirOwn) {
  driver.mig_mode = Return::success;
  driver.mig_count = 2;
  driver.compute = {process(10, 100, 7)};
  const Reading& reading = sample();
  EXPECT_EQ(reading.mig_mode, true);
  ASSERT_EQ(gpu_.parts.size(), 2U);
  EXPECT_EQ(gpu_.parts[1].device.uuid, "MIG-1");
  EXPECT_EQ(gpu_.parts[1].device.label(), "0:1");
  EXPECT_EQ(gpu_.parts[1].device.gpu_instance, 8U);
  ASSERT_EQ(answer_.parts.size(), 2U);
  EXPECT_EQ(answer_.parts[1].why_missing(Metric::util), Absence::not_supported);
  EXPECT_EQ(answer_.parts[1].why_missing(Metric::power), Absence::not_supported);
  EXPECT_EQ(answer_.parts[1][Metric::mem_used], 40);
  EXPECT_EQ(answer_.parts[1].device_absence, Absence::none);
  EXPECT_EQ((*reading.tenants)[0].gpu_instance, 7U);
}

TEST_F(NvmlValues, AMigDeviceThatWasDestroyedIsLookedForAgain) {
  driver.mig_mode = Return::success;
  driver.mig_count = 2;
  sample();
  const unsigned changes = gpu_.changes;
  driver.mig_count = 1;
  driver.mig_memory = Return::invalid_argument;  // what a void handle gets
  sample();
  driver.mig_memory = Return::success;
  sample();
  EXPECT_EQ(gpu_.parts.size(), 1U);
  EXPECT_EQ(answer_.parts.size(), 1U);
  EXPECT_GT(gpu_.changes, changes);
}

}  // namespace
}  // namespace lull
