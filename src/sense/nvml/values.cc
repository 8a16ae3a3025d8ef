// The values of a GPU at one moment.
#include <algorithm>
#include <utility>

#include "sense/nvml/gpu.h"

namespace lull {
namespace {

using nvml::Return;

constexpr Duration kLookAgain = std::chrono::seconds(5);   // a GPU that fails may have a new handle
constexpr Duration kLookAtMig = std::chrono::seconds(10);  // MIG devices come and go while we run
constexpr std::size_t kSampleRoom = 1024;                  // well above any driver's buffer
constexpr unsigned kDryLooks = 3;

// Reads one device into one reading. Ends early where the device as a whole is gone.
class Reader {
 public:
  Reader(const NvmlCalls& calls, nvml::Device handle, NvmlMemory& memory, const Needs& needs, Instant now,
         NvmlRoom& room, Reading& reading)
      : calls_(calls), handle_(handle), memory_(memory), needs_(needs), now_(now), room_(room), reading_(reading) {}

  void gpu() {
    if (!util() || (needs_.memory && !device_memory())) return;
    if (needs_.power) power();
    if (needs_.details) details();
    if (needs_.tenants) tenants();
    if (needs_.pcie) pcie();
  }

  // A MIG device has memory and tenants; all else belongs to the whole card.
  void part() {
    for (const Metric metric :
         {Metric::power, Metric::power_limit, Metric::temp, Metric::clock, Metric::pstate, Metric::fan, Metric::pcie})
      reading_.miss(metric, Absence::not_supported);
    if (!util() || (needs_.memory && !device_memory())) return;
    if (needs_.tenants) tenants();
  }

  Return fatal() const { return fatal_; }
  bool invalid() const { return invalid_; }

 private:
  // Notes what concerns more than the one value.
  Return note(Return code) {
    if (code == Return::success) [[likely]]
      return code;
    if (driver_gone(code) || code == Return::gpu_is_lost || code == Return::reset_required ||
        code == Return::gpu_not_found)
      fatal_ = code;
    if (code == Return::invalid_argument || code == Return::not_found) invalid_ = true;
    return code;
  }

  template <class Function, class... Arguments>
  Return call(Function* function, Arguments... arguments) {
    return note(ask(function, handle_, arguments...));
  }

  // One unsigned number, scaled, into one metric.
  template <class Function, class... Arguments>
  void number(Metric metric, double scale, Function* function, Arguments... arguments) {
    unsigned value = 0;
    const Return code = call(function, arguments..., &value);
    if (code == Return::success)
      reading_.set(metric, value * scale);
    else
      reading_.miss(metric, absence_of(code));
  }

  bool util() {
    nvml::Utilization rates{};
    const Return code = call(calls_.DeviceGetUtilizationRates, &rates);
    if (fatal_ != Return::success) return false;
    const bool known = code == Return::success && rates.gpu <= 100;
    const Absence why = code == Return::success ? Absence::failed : absence_of(code);
    if (code == Return::success && rates.memory <= 100)
      reading_.set(Metric::mem_util, rates.memory);
    else
      reading_.miss(Metric::mem_util, why);
    if (known) {
      reading_.set(Metric::util, rates.gpu);
      reading_.util_basis = Basis::instant;
    } else {
      reading_.miss(Metric::util, why);
    }
    if (!needs_.once || needs_.idle_before) mean_util(known ? std::optional<unsigned>(rates.gpu) : std::nullopt);
    return fatal_ == Return::success;
  }

  void mean_util(std::optional<unsigned> instant) {
    const Duration elapsed = now_ - std::exchange(memory_.util_at, now_);
    const bool first = !memory_.buffer_known;
    unsigned type = 0;
    auto count = static_cast<unsigned>(kSampleRoom);
    if (room_.samples.size() < kSampleRoom) room_.samples.resize(kSampleRoom);
    const Return code = ask(calls_.DeviceGetSamples, handle_, unsigned{nvml::kSamplesGpuUtil}, memory_.newest_sample_us,
                            &type, &count, room_.samples.data());
    if (driver_gone(code) || code == Return::gpu_is_lost || code == Return::reset_required) fatal_ = code;
    if (code != Return::success || count == 0) {
      // Dry: nothing was recorded. The moment decides; if that says work is done time and again, then the
      // clock that the buffer counts by was set back, and we start over.
      const bool dry = code == Return::not_found || (code == Return::success && count == 0);
      memory_.dry_while_busy = dry && !first && instant.value_or(0) > 0 && elapsed > std::chrono::milliseconds(500)
                                   ? memory_.dry_while_busy + 1
                                   : 0;
      memory_.buffer_known = (dry || memory_.buffer_known) && memory_.dry_while_busy < kDryLooks;
      if (!memory_.buffer_known) memory_.newest_sample_us = 0;
      return;
    }
    memory_.dry_while_busy = 0;
    const std::span<const nvml::Sample> samples(room_.samples.data(), std::min<std::size_t>(count, kSampleRoom));
    if (first && needs_.idle_before) {
      const auto since_boot = SystemClock().now().time_since_epoch();
      const auto now_us = std::chrono::duration_cast<std::chrono::microseconds>(since_boot).count();
      reading_.idle_before = idle_tail(samples, type, static_cast<unsigned long long>(now_us), room_.distances);
    }
    const auto mean = mean_of_buffer(samples, type, memory_.newest_sample_us, room_.distances);
    if (!mean) return;
    memory_.newest_sample_us = mean->newest_us;
    memory_.buffer_known = true;
    if (first || elapsed <= Duration::zero()) return;  // of the time before us: no mean since the previous sample
    reading_.set(Metric::util, mean->mean);
    reading_.util_basis = Basis::mean;
    reading_.util_coverage =
        std::min(1.0, std::chrono::duration<double>(mean->covered) / std::chrono::duration<double>(elapsed));
  }

  bool device_memory() {
    nvml::Memory memory{};
    const Return code = call(calls_.DeviceGetMemoryInfo, &memory);
    if (code == Return::success) {
      reading_.set(Metric::mem_used, static_cast<double>(memory.used));
      reading_.set(Metric::mem_free, static_cast<double>(memory.free));
      reading_.set(Metric::mem_total, static_cast<double>(memory.total));
    } else {
      for (const Metric metric : {Metric::mem_used, Metric::mem_free, Metric::mem_total})
        reading_.miss(metric, absence_of(code));
    }
    return fatal_ == Return::success;
  }

  void power() {
    unsigned long long millijoules = 0;
    std::optional<double> mean;
    if (call(calls_.DeviceGetTotalEnergyConsumption, &millijoules) == Return::success) {
      if (!memory_.energy.too_soon(now_)) mean = memory_.energy.watts(millijoules, SystemClock().now());
      reading_.energy_joules = static_cast<double>(millijoules) / 1000;
    } else {
      memory_.energy.forget();
    }
    if (mean) {
      reading_.set(Metric::power, *mean);
      reading_.power_basis = Basis::mean;
    } else {
      number(Metric::power, 0.001, calls_.DeviceGetPowerUsage);
      if (reading_.why_missing(Metric::power) == Absence::none) reading_.power_basis = Basis::instant;
    }
    number(Metric::power_limit, 0.001, calls_.DeviceGetEnforcedPowerLimit);
    if (reading_.why_missing(Metric::power_limit) == Absence::no_symbol)
      number(Metric::power_limit, 0.001, calls_.DeviceGetPowerManagementLimit);
  }

  void details() {
    number(Metric::temp, 1, calls_.DeviceGetTemperature, unsigned{nvml::kTemperatureGpu});
    number(Metric::fan, 1, calls_.DeviceGetFanSpeed);
    number(Metric::clock, 1, calls_.DeviceGetClockInfo, unsigned{nvml::kClockSm});
    number(Metric::pstate, 1, calls_.DeviceGetPerformanceState);
    if (reading_[Metric::pstate] > unsigned{nvml::kPstateMax}) reading_.miss(Metric::pstate, Absence::failed);
    unsigned mhz = 0;
    if (call(calls_.DeviceGetClockInfo, unsigned{nvml::kClockMemory}, &mhz) == Return::success)
      reading_.mem_clock_mhz = mhz;
    unsigned long long reasons = 0;
    Return code = call(calls_.DeviceGetCurrentClocksEventReasons, &reasons);
    if (code == Return::function_not_found) code = call(calls_.DeviceGetCurrentClocksThrottleReasons, &reasons);
    if (code == Return::success) reading_.throttle_reasons = reasons;
  }

  // A list whose size is not known before: the room grows until it fits. nullopt-like: an error code.
  template <class Entry, class Function>
  Return list(Function* function, std::vector<Entry>& room, unsigned& count) {
    Return code = Return::function_not_found;
    if (function == nullptr) return code;
    for (int tries = 0; tries < 4; ++tries) {
      if (room.size() < 64) room.resize(64);
      // A driver that writes longer entries than it should must not write behind the end.
      count = static_cast<unsigned>(room.size() / 2);
      code = note(function(handle_, &count, room.data()));
      if (code != Return::insufficient_size) break;
      room.resize(std::max<std::size_t>(room.size() * 2, (count + std::size_t{16}) * 2));
    }
    return code;
  }

  template <class New, class Old>
  Return processes(New* third, New* second, Old* first, bool compute, std::vector<Tenant>& tenants) {
    unsigned count = 0;
    Return code = list(third != nullptr ? third : second, room_.processes, count);
    if (code == Return::success) {
      for (unsigned i = 0; i < count; ++i) {
        const nvml::Process& process = room_.processes[i];
        add(tenants, process.pid, process.used_memory, process.gpu_instance, compute);
      }
    } else if (code == Return::function_not_found) {
      code = list(first, room_.old_processes, count);
      for (unsigned i = 0; code == Return::success && i < count; ++i)
        add(tenants, room_.old_processes[i].pid, room_.old_processes[i].used_memory, nvml::kNoInstance, compute);
    }
    return code;
  }

  // A process may be in several lists, on one GPU or MIG instance it is one tenant.
  static void add(std::vector<Tenant>& tenants, unsigned pid, unsigned long long used, unsigned instance,
                  bool compute) {
    const auto gpu_instance = instance == nvml::kNoInstance ? std::nullopt : std::optional(instance);
    const auto same = [&](const Tenant& tenant) {
      return tenant.pid == static_cast<pid_t>(pid) && tenant.gpu_instance == gpu_instance;
    };
    auto tenant = std::ranges::find_if(tenants, same);
    if (tenant == tenants.end()) {
      tenants.emplace_back().pid = static_cast<pid_t>(pid);
      tenant = tenants.end() - 1;
      tenant->gpu_instance = gpu_instance;
    }
    (compute ? tenant->compute : tenant->graphics) = true;
    if (used != nvml::kValueNotAvailable)
      tenant->memory_bytes = std::max(tenant->memory_bytes.value_or(0), std::uint64_t{used});
  }

  void tenants() {
    std::vector<Tenant>& tenants = reading_.tenants ? *reading_.tenants : reading_.tenants.emplace();
    const Return code =
        processes(calls_.DeviceGetComputeRunningProcesses_v3, calls_.DeviceGetComputeRunningProcesses_v2,
                  calls_.DeviceGetComputeRunningProcesses, true, tenants);
    if (code != Return::success) {
      reading_.miss(Metric::procs, absence_of(code));
      reading_.tenants.reset();
      return;
    }
    processes(calls_.DeviceGetMPSComputeRunningProcesses_v3, calls_.DeviceGetMPSComputeRunningProcesses_v2,
              calls_.DeviceGetMPSComputeRunningProcesses, true, tenants);
    reading_.set(Metric::procs, static_cast<double>(tenants.size()));
    processes(calls_.DeviceGetGraphicsRunningProcesses_v3, calls_.DeviceGetGraphicsRunningProcesses_v2,
              calls_.DeviceGetGraphicsRunningProcesses, false, tenants);
  }

  void pcie() {
    unsigned sent = 0;
    unsigned received = 0;
    Return code = call(calls_.DeviceGetPcieThroughput, unsigned{nvml::kPcieTx}, &sent);
    if (code == Return::success) code = call(calls_.DeviceGetPcieThroughput, unsigned{nvml::kPcieRx}, &received);
    if (code == Return::success)
      reading_.set(Metric::pcie, (static_cast<double>(sent) + received) * 1024);
    else
      reading_.miss(Metric::pcie, absence_of(code));
  }

  const NvmlCalls& calls_;
  nvml::Device handle_;
  NvmlMemory& memory_;
  const Needs& needs_;
  const Instant now_;
  NvmlRoom& room_;
  Reading& reading_;
  Return fatal_ = Return::success;
  bool invalid_ = false;
};

// As new, but the room that its list had is kept.
void clear(Reading& reading) {
  static const Reading blank;
  std::vector<Tenant> room;
  if (reading.tenants) room = std::move(*reading.tenants);
  room.clear();
  reading = blank;
  reading.tenants.emplace(std::move(room));
}

// Not one value: the device as a whole does not work.
Absence nothing_read(const Reading& reading) {
  Absence why = Absence::none;
  for (const MetricInfo& row : kMetricTable) {
    const Absence absence = reading.why_missing(row.metric);
    if (row.of != Of::gpu || absence == Absence::not_asked) continue;
    if (absence == Absence::none) return Absence::none;
    if (why == Absence::none || why == Absence::not_supported) why = absence;
  }
  return why;
}

void close(Reading& reading, Return fatal, const Needs& needs) {
  if (fatal != Return::success) return reading.miss_all(absence_of(fatal));
  if (!needs.tenants) reading.tenants.reset();
  reading.device_absence = nothing_read(reading);
}

}  // namespace

void sample_gpu(const NvmlCalls& calls, NvmlGpu& gpu, const Needs& needs, Instant now, NvmlRoom& room, Answer& answer) {
  answer.driver_gone = false;
  const bool stale = gpu.mig_mode.value_or(false) ? now - gpu.identified_at > kLookAtMig : false;
  Return code = Return::success;
  if (!gpu.identified || stale) code = identify(calls, gpu, now);
  answer.parts.resize(gpu.parts.size());
  if (code != Return::success) {
    answer.driver_gone = driver_gone(code);
    answer.gpu.miss_all(absence_of(code));
    for (Reading& part : answer.parts) part.miss_all(absence_of(code));
    return;
  }
  clear(answer.gpu);
  Reader reader(calls, gpu.handle, gpu.memory, needs, now, room, answer.gpu);
  reader.gpu();
  close(answer.gpu, reader.fatal(), needs);
  answer.gpu.mig_mode = gpu.mig_mode;
  answer.driver_gone = driver_gone(reader.fatal());
  for (std::size_t i = 0; i < gpu.parts.size(); ++i) {
    clear(answer.parts[i]);
    Reader part(calls, gpu.parts[i].handle, gpu.parts[i].memory, needs, now, room, answer.parts[i]);
    part.part();
    close(answer.parts[i], part.fatal(), needs);
    if (part.invalid()) gpu.identified = false;  // the MIG devices are not what they were: look again
  }
  // A GPU that does not answer may do so under a new handle, after it was reset.
  if (answer.gpu.device_absence != Absence::none && now - gpu.identified_at > kLookAgain) gpu.identified = false;
}

}  // namespace lull
