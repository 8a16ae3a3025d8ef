// What a card shows at the moment, and its sample buffer and energy counter.
#include <algorithm>

#include "sim/library/client.h"

using namespace lull::sim;
namespace nvml = lull::nvml;

namespace lull::sim {

// Drivers differ in the clock of their samples: since boot, or since 1970.
std::int64_t sample_stamp_us(const State& state, std::int64_t boot_ns) {
  return (state.sample_epoch != 0 ? boot_ns - state.start_boot_ns + state.start_wall_ns : boot_ns) / 1000;
}

namespace {

std::int64_t stamp_to_boot_ns(const State& state, unsigned long long us) {
  // Past the stamp's microsecond: a sample is asked for that is newer than the one that was seen.
  const auto ns = static_cast<std::int64_t>(std::min<unsigned long long>(us, 1ULL << 53)) * 1000 + 999;
  return state.sample_epoch != 0 ? ns - state.start_wall_ns + state.start_boot_ns : ns;
}

constexpr unsigned kCapacity = kMaxSampleCapacity;

Return reading(const char* function, Device device, unsigned* out, Metric metric, double scale = 1) {
  return on_gpu(function, device, [&](const Look& look) {
    if (metric == Metric::power_limit && look.has(kNoPowerLimit)) return Return::not_supported;
    return look.garbage ? give_garbage(out) : give_value(out, look.value(metric) * scale);
  });
}

bool has_util(const Look& look) { return !look.mig() && !look.has(kNoUtil); }

// Of memory that is not the card's own nothing is told.
bool has_memory(const Look& look) {
  if (look.has(kUnifiedMemory)) return false;
  return look.target.is_mig() || std::isfinite(look.value(Metric::mem_used));
}

}  // namespace
}  // namespace lull::sim

// What a ring has in it that was overwritten: percentages that are none, and one that could be.
namespace {
constexpr unsigned kNonsense[] = {37100, 4294967295, 0, 250, 101, 3722304989, 2147483648, 65535};
}

// ---- utilisation -------------------------------------------------------------------
LULL_EXPORT Return nvmlDeviceGetUtilizationRates(Device device, nvml::Utilization* utilization) {
  return on_gpu(
      __func__, device,
      [&](const Look& look) {
        if (utilization == nullptr) return Return::invalid_argument;
        if (!has_util(look)) return Return::not_supported;
        if (look.garbage) {
          *utilization = {kNonsense[0], kNonsense[1]};
          return Return::success;
        }
        if (look.has(kNvmlZeros)) {
          *utilization = {0, 0};
          return Return::success;
        }
        const double gpu = recent_mean(look.scene, look.gpu, Metric::util, look.now);
        if (!std::isfinite(gpu)) return Return::not_supported;
        const double memory = recent_mean(look.scene, look.gpu, Metric::mem_util, look.now);
        const Return first = give_value(&utilization->gpu, gpu);
        return first == Return::success ? give_value(&utilization->memory, std::isfinite(memory) ? memory : 0) : first;
      },
      true);
}

namespace {

Return engine_util(const char* function, Device device, unsigned* percent, unsigned* period_us, Metric metric) {
  return on_gpu(
      function, device,
      [&](const Look& look) {
        if (!has_util(look)) return Return::not_supported;
        const Return first = give(period_us, look.scene.state.sample_period_ns / 1000);
        return first == Return::success ? give_value(percent, look.value(metric)) : first;
      },
      true);
}

// A ring full of nonsense, at the right times: of all its values one is 0, and that one is not true either.
Return overwrite(const State& state, std::int64_t now, unsigned many, unsigned* count, nvml::Sample* out) {
  for (unsigned i = 0; i < many; ++i) {
    const std::int64_t end = boot_time(state, now) - std::int64_t{many - 1 - i} * state.sample_period_ns;
    out[i].timestamp = static_cast<unsigned long long>(sample_stamp_us(state, end));
    out[i].value.ull = 0;
    const unsigned which = i % std::size(kNonsense);
    out[i].value.ui = kNonsense[i >= std::size(kNonsense) && kNonsense[which] == 0 ? 0 : which];
  }
  *count = many;
  return Return::success;
}

Return read_samples(const Look& look, Metric metric, double scale, unsigned long long last_seen, unsigned* count,
                    unsigned capacity, nvml::Sample* out) {
  const State& state = look.scene.state;
  BufferedSample samples[kCapacity];
  const std::int64_t after = last_seen == 0 ? 0 : stamp_to_boot_ns(state, last_seen);
  const unsigned found = buffered_samples(look.scene, look.gpu, metric, after, samples, std::min(capacity, kCapacity));
  for (unsigned i = 0; i < found; ++i) {
    out[i].timestamp = static_cast<unsigned long long>(sample_stamp_us(state, samples[i].end_boot_ns));
    out[i].value.ull = 0;
    out[i].value.ui = static_cast<unsigned>(samples[i].value * scale);
  }
  *count = found;
  if (look.garbage) return overwrite(state, look.now, std::min(capacity, state.sample_capacity), count, out);
  return found == 0 ? Return::not_found : Return::success;
}

// Clocks have no sums: the value at the end of each sample that was recorded.
Return read_clock_samples(const Look& look, Metric metric, unsigned long long last_seen, unsigned* count,
                          unsigned capacity, nvml::Sample* out) {
  const Return result = read_samples(look, Metric::util, 1, last_seen, count, capacity, out);
  const State& state = look.scene.state;
  for (unsigned i = 0; result == Return::success && i < *count; ++i) {
    const std::int64_t at = scenario_time(state, stamp_to_boot_ns(state, out[i].timestamp));
    out[i].value.ui = static_cast<unsigned>(whole(value(look.scene, look.gpu, metric, at)));
  }
  return result;
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetEncoderUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return engine_util(__func__, device, percent, period_us, Metric::encoder);
}
LULL_EXPORT Return nvmlDeviceGetDecoderUtilization(Device device, unsigned* percent, unsigned* period_us) {
  return engine_util(__func__, device, percent, period_us, Metric::decoder);
}

LULL_EXPORT Return nvmlDeviceGetSamples(Device device, unsigned type, unsigned long long last_seen,
                                        unsigned* value_type, unsigned* count, nvml::Sample* samples) {
  if (count == nullptr || value_type == nullptr || type > nvml::kSamplesMemoryClock)
    return on_gpu(__func__, device, [](const Look&) { return Return::invalid_argument; });
  const unsigned capacity = *count;
  const bool about_util = type >= nvml::kSamplesGpuUtil && type <= nvml::kSamplesDecoderUtil;
  return on_gpu(
      __func__, device,
      [&](const Look& look) {
        if (look.card.sample_buffer == 0 || (about_util && !has_util(look))) return Return::not_supported;
        if (look.has(kSampleBufferDry)) return samples == nullptr ? give(count, 0U) : Return::not_found;
        if (about_util && std::isinf(look.value(Metric::util))) return Return::not_supported;
        *value_type = nvml::kValueUint;
        if (samples == nullptr) return give(count, look.scene.state.sample_capacity);
        if (capacity == 0) return Return::invalid_argument;
        switch (type) {
          case nvml::kSamplesPower: return read_samples(look, Metric::power, 1, last_seen, count, capacity, samples);
          case nvml::kSamplesGpuUtil: return read_samples(look, Metric::util, 1, last_seen, count, capacity, samples);
          case nvml::kSamplesMemoryUtil:
            return read_samples(look, Metric::mem_util, 1, last_seen, count, capacity, samples);
          case nvml::kSamplesSmClock:
            return read_clock_samples(look, Metric::clock, last_seen, count, capacity, samples);
          case nvml::kSamplesMemoryClock:
            return read_clock_samples(look, Metric::mem_clock, last_seen, count, capacity, samples);
          default:  // encoder, decoder
            return read_clock_samples(look, type == nvml::kSamplesEncoderUtil ? Metric::encoder : Metric::decoder,
                                      last_seen, count, capacity, samples);
        }
      },
      about_util);
}

// ---- memory --------------------------------------------------------------------------
namespace {

struct Space {
  std::uint64_t total;
  std::uint64_t reserved;
  std::uint64_t used;  // without what is reserved
};

Space space_of(const Look& look) {
  if (look.garbage) return {~0ULL, 0, ~0ULL};
  if (look.has(kMemoryTotalZero)) return {0, 0, 0};
  if (look.target.is_mig()) {
    const MigDevice& mig = look.card.mig[look.target.mig];
    return {mig.memory_total, mig.memory_reserved,
            mig_memory_used(look.scene, look.gpu, look.target.mig, look.now) - mig.memory_reserved};
  }
  const double used = look.value(Metric::mem_used);
  const std::uint64_t most = look.card.memory_total - look.card.memory_reserved;
  return {look.card.memory_total, look.card.memory_reserved,
          std::min(static_cast<std::uint64_t>(std::max(0.0, used)), most)};
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetMemoryInfo(Device device, nvml::Memory* memory) {
  return on_device(__func__, device, [&](const Look& look) {
    if (memory == nullptr) return Return::invalid_argument;
    if (!has_memory(look)) return Return::not_supported;
    const Space space = space_of(look);
    *memory = {space.total, space.total - space.reserved - space.used, space.reserved + space.used};
    return Return::success;
  });
}
LULL_EXPORT Return nvmlDeviceGetMemoryInfo_v2(Device device, nvml::MemoryV2* memory) {
  return on_device(__func__, device, [&](const Look& look) {
    if (memory == nullptr) return Return::invalid_argument;
    if (memory->version != nvml::kMemoryV2) return Return::argument_version_mismatch;
    if (!has_memory(look)) return Return::not_supported;
    const Space space = space_of(look);
    *memory = {nvml::kMemoryV2, space.total, space.reserved, space.total - space.reserved - space.used, space.used};
    return Return::success;
  });
}
LULL_EXPORT Return nvmlDeviceGetBAR1MemoryInfo(Device device, nvml::Bar1Memory* memory) {
  return on_device(__func__, device, [&](const Look& look) {
    constexpr std::uint64_t kUsed = 2ULL << 20;
    const std::uint64_t total = look.target.is_mig()
                                    ? look.card.bar1_total / 8 * look.card.mig[look.target.mig].memory_slices
                                    : look.card.bar1_total;
    return give(memory, nvml::Bar1Memory{total, total - kUsed, kUsed});
  });
}

// ---- power, temperature, fan, clocks ----------------------------------------------------
LULL_EXPORT Return nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) {
  return reading(__func__, device, milliwatts, Metric::power, 1e3);
}
LULL_EXPORT Return nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* milliwatts) {
  return reading(__func__, device, milliwatts, Metric::power_limit, 1e3);
}
LULL_EXPORT Return nvmlDeviceGetPowerManagementLimit(Device device, unsigned* milliwatts) {
  return reading(__func__, device, milliwatts, Metric::power_limit, 1e3);
}
LULL_EXPORT Return nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* millijoules) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.card.energy_counter == 0) return Return::not_supported;
    if (look.garbage) return give_garbage(millijoules);
    return give(millijoules, energy_mj(look.scene, look.gpu, look.now));
  });
}
LULL_EXPORT Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned* celsius) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (sensor != nvml::kTemperatureGpu) return Return::invalid_argument;
    return look.garbage ? give(celsius, 4'000'000'000U) : give_value(celsius, look.value(Metric::temp));
  });
}
LULL_EXPORT Return nvmlDeviceGetFanSpeed(Device device, unsigned* percent) {
  return reading(__func__, device, percent, Metric::fan);
}
LULL_EXPORT Return nvmlDeviceGetFanSpeed_v2(Device device, unsigned fan, unsigned* percent) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.card.fans == 0) return Return::not_supported;
    return fan >= look.card.fans ? Return::invalid_argument : give_value(percent, look.value(Metric::fan));
  });
}
LULL_EXPORT Return nvmlDeviceGetClockInfo(Device device, unsigned type, unsigned* mhz) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (type >= nvml::kClocks) return Return::invalid_argument;
    if (look.garbage) return give_garbage(mhz);
    if (type == nvml::kClockVideo) return give_value(mhz, look.value(Metric::clock) * 0.85);
    return give_value(mhz, look.value(type == nvml::kClockMemory ? Metric::mem_clock : Metric::clock));
  });
}

namespace {

Return highest_clock(const Look& look, unsigned type, unsigned* mhz) {
  if (type >= nvml::kClocks) return Return::invalid_argument;
  if (type == nvml::kClockVideo) return give(mhz, look.card.clock_boost * 85 / 100);
  return give(mhz, type == nvml::kClockMemory ? look.card.mem_clock_boost : look.card.clock_boost);
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetMaxClockInfo(Device device, unsigned type, unsigned* mhz) {
  return on_gpu(__func__, device, [&](const Look& look) { return highest_clock(look, type, mhz); });
}
LULL_EXPORT Return nvmlDeviceGetClock(Device device, unsigned type, unsigned id, unsigned* mhz) {
  return id == nvml::kClockIdCurrent
             ? nvmlDeviceGetClockInfo(device, type, mhz)
             : on_gpu(__func__, device, [&](const Look& look) { return highest_clock(look, type, mhz); });
}
LULL_EXPORT Return nvmlDeviceGetPerformanceState(Device device, unsigned* pstate) {
  return reading(__func__, device, pstate, Metric::pstate);
}
LULL_EXPORT Return nvmlDeviceGetPowerState(Device device, unsigned* pstate) {
  return reading(__func__, device, pstate, Metric::pstate);
}

namespace {

Return throttle_reasons(const char* function, Device device, unsigned long long* reasons) {
  return on_gpu(function, device, [&](const Look& look) { return give_value(reasons, look.value(Metric::throttle)); });
}
Return all_reasons(const char* function, Device device, unsigned long long* reasons) {
  return on_gpu(function, device, [&](const Look&) { return give(reasons, nvml::kReasonAll); });
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetCurrentClocksThrottleReasons(Device device, unsigned long long* reasons) {
  return throttle_reasons(__func__, device, reasons);
}
LULL_EXPORT Return nvmlDeviceGetCurrentClocksEventReasons(Device device, unsigned long long* reasons) {
  return throttle_reasons(__func__, device, reasons);
}
LULL_EXPORT Return nvmlDeviceGetSupportedClocksThrottleReasons(Device device, unsigned long long* reasons) {
  return all_reasons(__func__, device, reasons);
}
LULL_EXPORT Return nvmlDeviceGetSupportedClocksEventReasons(Device device, unsigned long long* reasons) {
  return all_reasons(__func__, device, reasons);
}
LULL_EXPORT Return nvmlDeviceGetPcieThroughput(Device device, unsigned counter, unsigned* kib_per_second) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (counter > nvml::kPcieRx) return Return::invalid_argument;
    return give_value(kib_per_second, look.value(counter == nvml::kPcieTx ? Metric::pcie_tx : Metric::pcie_rx) / 1024);
  });
}

// ---- the same by number -------------------------------------------------------------------
namespace {

// MB/s of one link: NVLink 4; the bridges of desktop cards; NVLink 2 and 3.
unsigned link_speed(const Gpu& card) {
  if (card.link_version >= 4) return 26562;
  return card.brand == nvml::kBrandGeForce ? 14062 : 25000;
}

Return field(const Look& look, nvml::FieldValue& out) {
  const auto as_uint = [&](double value) {
    out.value_type = nvml::kValueUint;
    out.value.ull = 0;
    return give_value(&out.value.ui, value);
  };
  // By scope: the GPU's own, or that of the module which it is part of.
  const auto power = [&](double own) {
    if (look.garbage) return as_uint(4294967295.0);
    if (out.scope_id == nvml::kPowerScopeGpu) return as_uint(own * 1e3);
    if (out.scope_id != nvml::kPowerScopeModule || !(look.card.module_power > 0)) return Return::not_supported;
    return as_uint((own + look.card.module_power) * 1e3);
  };
  switch (out.field_id) {
    case nvml::kFieldEccCurrent:
    case nvml::kFieldEccPending: return look.card.ecc == 0 ? Return::not_supported : as_uint(look.card.ecc - 1);
    case nvml::kFieldTotalEnergy:
      if (look.card.energy_counter == 0) return Return::not_supported;
      out.value_type = nvml::kValueUlonglong;
      out.value.ull = energy_mj(look.scene, look.gpu, look.now);
      return Return::success;
    case nvml::kFieldPowerAverage: return power(recent_mean(look.scene, look.gpu, Metric::power, look.now));
    case nvml::kFieldPowerInstant: return power(look.value(Metric::power));
    case nvml::kFieldNvlinkLinkCount:
      return look.card.link_count == 0 ? Return::not_supported : as_uint(look.card.link_count);
    case nvml::kFieldNvswitchLinkCount:
      return look.card.link_count == 0 ? Return::not_supported
                                       : as_uint(static_cast<double>(std::count(
                                             look.card.link, look.card.link + look.card.link_count, kLinkSwitch)));
    case nvml::kFieldNvlinkSpeedMbpsCommon:
      return look.card.link_count == 0 ? Return::not_supported : as_uint(link_speed(look.card));
    case nvml::kFieldNvlinkGetSpeed:
    case nvml::kFieldNvlinkGetState:
      if (look.card.link_count == 0) return Return::not_supported;
      if (out.scope_id >= look.card.link_count) return Return::invalid_argument;
      if (look.card.link[out.scope_id] == 0) return as_uint(0);
      return as_uint(out.field_id == nvml::kFieldNvlinkGetSpeed ? link_speed(look.card) : 1);
    case nvml::kFieldPcieReplay: return as_uint(0);
    default: return Return::not_supported;
  }
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetFieldValues(Device device, int count, nvml::FieldValue* values) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (values == nullptr || count < 0) return Return::invalid_argument;
    const State& state = look.scene.state;
    const std::int64_t wall = boot_time(state, look.now) - state.start_boot_ns + state.start_wall_ns;
    for (int i = 0; i < count; ++i) {
      values[i].timestamp = wall / 1000;
      values[i].latency_us = 0;
      values[i].result = field(look, values[i]);
    }
    return Return::success;
  });
}
