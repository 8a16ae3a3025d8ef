#pragma once
// For tests: a driver made of plain functions, and a GPU of it in simulated time. What
// no simulator should do, a driver somewhere does.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "sense/file_tree_test.h"
#include "sense/nvml/gpu.h"

namespace lull {

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
  unsigned milliwatts = 55'500;
  unsigned power_limit = 300'000;
  Return average = Return::not_supported;  // of field 185
  unsigned average_milliwatts = 0;
  unsigned average_scope = 99;
  unsigned celsius = 61;
  unsigned pstate = 32;  // "unknown"
  nvml::MemoryV2 memory{0, 100, 10, 60, 30};
  Return memory_second = Return::success;
  Return memory_first = Return::success;
  Return display = Return::success;
  unsigned display_active = 0;
  unsigned compute_lists = 0;  // how often asked
  unsigned graphics_lists = 0;
  unsigned shared_lists = 0;
  std::vector<nvml::Process> compute;
  std::vector<nvml::Process> graphics;
  std::vector<nvml::Process> shared;
  std::vector<nvml::ProcessV1> old_compute;
  Return mig_mode = Return::not_supported;
  unsigned mig_current = nvml::kMigEnabled;
  unsigned mig_count = 0;
  Return mig_memory = Return::success;
  unsigned gpm_supported = 1;
  Return gpm_query = Return::success;
  Return gpm_alloc = Return::success;
  Return gpm_sample = Return::success;
  Return gpm_mig_sample = Return::success;
  Return gpm_get = Return::success;
  std::map<unsigned, double> gpm_values = {{1, 50}, {2, 40}, {5, 30}, {10, 20}};
  std::map<unsigned, Return> gpm_results;
  std::set<nvml::GpmSample> gpm_samples;  // allocated and not freed
  unsigned gpm_allocated = 0;
  std::vector<std::string> gpm_asked;          // "mig 7", "whole", "get"
  std::function<void()> gpm_passes = [] {};    // while a sample is taken
  std::function<std::int64_t()> gpm_now = {};  // ms; then samples less than 100 ms apart give zeros
  unsigned calls = 0;
};
inline Driver driver;

// NOLINTNEXTLINE(performance-no-int-to-ptr): a handle is any pointer that the driver made up
inline nvml::Device handle(unsigned number) { return reinterpret_cast<nvml::Device>(std::uintptr_t{0x1000} + number); }
inline unsigned mig_number(nvml::Device device) {
  return static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(device) -
                               reinterpret_cast<std::uintptr_t>(handle(100)));
}
inline bool is_mig(nvml::Device device) { return device >= handle(100); }

template <class Entry>
Return give(const std::vector<Entry>& list, unsigned* count, Entry* out) {
  ++driver.calls;
  if (driver.everything != Return::success) return driver.everything;
  const unsigned buffers = *count;
  *count = static_cast<unsigned>(list.size());
  if (buffers < list.size()) return Return::insufficient_size;
  std::ranges::copy(list, out);
  return Return::success;
}

inline Return number(unsigned* out, unsigned value, Return code = Return::success) {
  ++driver.calls;
  if (driver.everything != Return::success) return driver.everything;
  if (code == Return::success) *out = value;
  return code;
}

inline Return text(char* out, unsigned length, const std::string& value) {
  if (driver.everything != Return::success) return driver.everything;
  std::strncpy(out, value.c_str(), length);
  return Return::success;
}

inline Return fake_samples(nvml::Device, unsigned, unsigned long long since, unsigned* type, unsigned* count,
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

inline NvmlCalls table() {
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
    *out = {driver.memory.total, driver.memory.free, driver.memory.used + driver.memory.reserved};
    return is_mig(device) ? driver.mig_memory : driver.memory_first;
  };
  calls.DeviceGetMemoryInfo_v2 = [](nvml::Device device, nvml::MemoryV2* out) {
    ++driver.calls;
    if (driver.everything != Return::success) return driver.everything;
    if (out->version != nvml::kMemoryV2) return Return::argument_version_mismatch;
    *out = driver.memory;
    return is_mig(device) ? driver.mig_memory : driver.memory_second;
  };
  calls.DeviceGetFieldValues = [](nvml::Device, int count, nvml::FieldValue* out) {
    if (count != 1 || out->field_id != nvml::kFieldPowerAverage) return Return::invalid_argument;
    driver.average_scope = out->scope_id;
    out->value_type = nvml::kValueUint;
    out->value.ui = driver.average_milliwatts;
    out->result = driver.average;
    return Return::success;
  };
  calls.DeviceGetDisplayActive = [](nvml::Device, unsigned* out) {
    *out = driver.display_active;
    return driver.display;
  };
  calls.DeviceGetPowerUsage = [](nvml::Device, unsigned* out) { return number(out, driver.milliwatts); };
  calls.DeviceGetEnforcedPowerLimit = [](nvml::Device, unsigned* out) { return number(out, driver.power_limit); };
  calls.DeviceGetTotalEnergyConsumption = [](nvml::Device, unsigned long long* out) {
    ++driver.calls;
    *out = driver.millijoules;
    return driver.everything != Return::success ? driver.everything : driver.energy;
  };
  calls.DeviceGetTemperature = [](nvml::Device, unsigned, unsigned* out) { return number(out, driver.celsius); };
  calls.DeviceGetFanSpeed = [](nvml::Device, unsigned* out) { return number(out, 30, driver.fan); };
  calls.DeviceGetClockInfo = [](nvml::Device, unsigned type, unsigned* out) {
    return number(out, type == nvml::kClockSm ? 1500 : 900);
  };
  calls.DeviceGetPerformanceState = [](nvml::Device, unsigned* out) { return number(out, driver.pstate); };
  calls.DeviceGetCurrentClocksThrottleReasons = [](nvml::Device, unsigned long long* out) {
    *out = 4;
    return driver.everything;
  };
  calls.DeviceGetComputeRunningProcesses_v3 = [](nvml::Device, unsigned* count, nvml::Process* out) {
    ++driver.compute_lists;
    return give(driver.compute, count, out);
  };
  calls.DeviceGetGraphicsRunningProcesses_v3 = [](nvml::Device, unsigned* count, nvml::Process* out) {
    ++driver.graphics_lists;
    return give(driver.graphics, count, out);
  };
  calls.DeviceGetMPSComputeRunningProcesses_v3 = [](nvml::Device, unsigned* count, nvml::Process* out) {
    ++driver.shared_lists;
    return give(driver.shared, count, out);
  };
  calls.DeviceGetMigMode = [](nvml::Device, unsigned* current, unsigned*) {
    *current = driver.mig_current;
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

// The calls for the chip's own counters, of a driver that has them. A sample is a small buffer, so that one who uses it
// after it was given back, or never gives it back, is found out by the sanitizers.
inline void add_counters(NvmlCalls& calls) {
  calls.GpmQueryDeviceSupport = [](nvml::Device device, nvml::GpmSupport* out) {
    EXPECT_FALSE(is_mig(device)) << "that spoils later calls on some drivers";
    EXPECT_EQ(out->version, nvml::kGpmVersion);
    driver.gpm_asked.emplace_back("support");
    if (driver.everything != Return::success) return driver.everything;
    out->supported = driver.gpm_supported;
    return driver.gpm_query;
  };
  calls.GpmSampleAlloc = [](nvml::GpmSample* out) {
    if (driver.gpm_alloc != Return::success) return driver.gpm_alloc;
    *out = reinterpret_cast<nvml::GpmSample>(new std::int64_t(0));
    driver.gpm_samples.insert(*out);
    ++driver.gpm_allocated;
    return Return::success;
  };
  calls.GpmSampleFree = [](nvml::GpmSample sample) {
    EXPECT_EQ(driver.gpm_samples.erase(sample), 1U) << "not one of ours, or freed before";
    delete reinterpret_cast<std::int64_t*>(sample);
    return Return::success;
  };
  calls.GpmSampleGet = [](nvml::Device device, nvml::GpmSample sample) {
    EXPECT_FALSE(is_mig(device));
    EXPECT_TRUE(driver.gpm_samples.contains(sample));
    driver.gpm_asked.emplace_back("whole");
    driver.gpm_passes();
    if (driver.gpm_now) *reinterpret_cast<std::int64_t*>(sample) = driver.gpm_now();
    return driver.everything != Return::success ? driver.everything : driver.gpm_sample;
  };
  calls.GpmMigSampleGet = [](nvml::Device device, unsigned instance, nvml::GpmSample sample) {
    EXPECT_FALSE(is_mig(device)) << "asked of the card";
    EXPECT_TRUE(driver.gpm_samples.contains(sample));
    driver.gpm_asked.push_back("mig " + std::to_string(instance));
    driver.gpm_passes();
    if (driver.gpm_now) *reinterpret_cast<std::int64_t*>(sample) = driver.gpm_now();
    return driver.everything != Return::success ? driver.everything : driver.gpm_mig_sample;
  };
  calls.GpmMetricsGet = [](nvml::GpmMetricsGet* get) {
    EXPECT_EQ(get->version, nvml::kGpmVersion);
    EXPECT_TRUE(driver.gpm_samples.contains(get->first) && driver.gpm_samples.contains(get->second));
    EXPECT_NE(get->first, get->second);
    driver.gpm_asked.emplace_back("get");
    if (driver.gpm_get != Return::success) return driver.gpm_get;
    const auto ms = [](nvml::GpmSample sample) { return *reinterpret_cast<std::int64_t*>(sample); };
    const bool valid = !driver.gpm_now || ms(get->second) - ms(get->first) >= 100;
    for (unsigned i = 0; i < get->count; ++i) {
      nvml::GpmMetric& metric = get->metrics[i];
      if (!driver.gpm_values.contains(metric.id)) continue;  // left as it was
      metric.value = valid ? driver.gpm_values[metric.id] : 0;
      metric.result = driver.gpm_results.contains(metric.id) ? driver.gpm_results[metric.id] : Return::success;
    }
    return Return::success;
  };
}

// The time of the test: it moves when a sample is taken.
class DriverClock final : public Clock {
 public:
  Instant now() const override { return at; }
  WallTime wall() const override { return WallTime(at.time_since_epoch() + since_1970); }
  Instant at{std::chrono::hours(30)};
  Duration since_1970 = std::chrono::hours(480'000);
};

class NvmlValues : public testing::Test {
 protected:
  void SetUp() override {
    driver = {};
    needs_.lists_every = {};
    buffers_.clock = &clock_;
    buffers_.root.driver = tree_.at("sim/proc/driver/nvidia");
    buffers_.first_namespace = true;  // whoever tests it asks anew
  }
  const Reading& sample(Duration after = std::chrono::seconds(1)) {
    clock_.at += after;
    sample_gpu(calls_, gpu_, needs_, clock_.at, buffers_, answer_);
    return answer_.gpu;
  }
  void look(Duration after) {
    clock_.at += after;
    look_gpu(calls_, gpu_, clock_.at, buffers_);
  }
  // The ring gets an entry of now (or a while ago), stamped by the time since boot.
  void record(unsigned percent, Duration ago = {}) {
    driver.samples = Return::success;
    const auto at = std::chrono::duration_cast<std::chrono::microseconds>(clock_.at.time_since_epoch() - ago);
    driver.buffer.emplace_back(static_cast<unsigned long long>(at.count()), percent);
  }
  // As a ring records: entries a sixth of a second apart until `until` from now, which comes to be now.
  void pass(Duration time, unsigned percent) {
    const Duration step = std::chrono::milliseconds(125);
    for (Duration done{}; done < time; done += step) {
      clock_.at += step;
      record(percent);
    }
  }

  TestTree tree_;
  DriverClock clock_;
  NvmlCalls calls_ = table();
  NvmlGpu gpu_{0};
  Needs needs_;
  NvmlBuffers buffers_;
  Answer answer_;
};

inline nvml::Process process(unsigned pid, unsigned long long memory, unsigned instance = nvml::kNoInstance) {
  return {pid, memory, instance, nvml::kNoInstance};
}

}  // namespace lull
