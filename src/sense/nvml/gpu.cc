#include "sense/nvml/gpu.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "sense/openers.h"
#include "sense/processes.h"

namespace lull {
namespace {

using nvml::Return;

// ---- who is on a GPU

constexpr unsigned kMostInAList = 1U << 16;

// Asks for the lists of one device.
class Lists {
 public:
  Lists(nvml::Device handle, NvmlBuffers& buffers, std::vector<GpuProcess>& processes)
      : handle_(handle), buffers_(buffers), processes_(processes) {}

  template <class New, class Old>
  Return ask(New* third, New* second, Old* first, bool compute) {
    unsigned count = 0;
    Return code = list(third != nullptr ? third : second, buffers_.processes, count);
    if (code == Return::success) {
      for (unsigned i = 0; i < count; ++i) {
        const nvml::Process& process = buffers_.processes[i];
        add(process.pid, process.used_memory, process.gpu_instance, compute);
      }
    } else if (code == Return::function_not_found) {
      code = list(first, buffers_.old_processes, count);
      for (unsigned i = 0; code == Return::success && i < count; ++i)
        add(buffers_.old_processes[i].pid, buffers_.old_processes[i].used_memory, nvml::kNoInstance, compute);
    }
    return code;
  }

 private:
  // A process may be in several lists, on one GPU or MIG instance it is one process.
  void add(unsigned pid, unsigned long long used, unsigned instance, bool compute) {
    const auto [place, is_new] = places_.try_emplace((std::uint64_t{pid} << 32U) | instance, processes_.size());
    if (is_new) {
      GpuProcess& one = processes_.emplace_back();
      one.pid = static_cast<pid_t>(pid);
      one.here = false;
      one.proof = Proof::unproven;
      if (instance != nvml::kNoInstance) one.gpu_instance = instance;
    }
    GpuProcess& process = processes_[place->second];
    (compute ? process.compute : process.graphics) = true;
    if (used != nvml::kValueNotAvailable && plausible(Metric::mem_used, static_cast<double>(used)))
      process.memory_bytes = std::max(process.memory_bytes.value_or(0), std::uint64_t{used});
  }

  // A list whose size is not known before: the buffer grows until it fits.
  template <class Entry, class Function>
  Return list(Function* function, std::vector<Entry>& buffers, unsigned& count) {
    Return code = Return::function_not_found;
    if (function == nullptr) return code;
    for (int tries = 0; tries < 4; ++tries) {
      if (buffers.size() < 64) buffers.resize(64);
      // A driver that writes longer entries than it should must not write behind the end.
      count = static_cast<unsigned>(buffers.size() / 2);
      code = function(handle_, &count, buffers.data());
      if (code != Return::insufficient_size) break;
      if (count > kMostInAList) return Return::unknown;  // nonsense
      buffers.resize(std::max<std::size_t>(buffers.size() * 2, (count + std::size_t{16}) * 2));
    }
    if (code == Return::success) count = std::min(count, static_cast<unsigned>(buffers.size()));
    return code;
  }

  nvml::Device handle_;
  NvmlBuffers& buffers_;
  std::vector<GpuProcess>& processes_;
  std::unordered_map<std::uint64_t, std::size_t> places_;  // by pid and instance
};

bool has_mps_server(const std::vector<GpuProcess>& processes) {
  return std::ranges::any_of(processes, &GpuProcess::mps_server);
}

Return list_once(const NvmlCalls& calls, nvml::Device handle, bool all, ProcessProofs::How how, NvmlBuffers& buffers,
                 GpuProcessList& list) {
  list.processes.clear();
  list.proofs.begin_list();
  Lists lists(handle, buffers, list.processes);
  const Return code = lists.ask(calls.DeviceGetComputeRunningProcesses_v3, calls.DeviceGetComputeRunningProcesses_v2,
                                calls.DeviceGetComputeRunningProcesses, true);
  list.absence = absence_of(code);
  if (code != Return::success) return code;
  list.proofs.look(list.processes, how, buffers.root);
  if (has_mps_server(list.processes)) {
    how.has_mps_server = how.all = true;
    list.proofs.begin_list();
    list.proofs.look(list.processes, how, buffers.root);
  }
  const std::size_t compute = list.processes.size();
  // A list that could not be read is not empty.
  const auto read = [&](Return more) {
    const bool has_none = more == Return::function_not_found || more == Return::not_supported;
    if (more != Return::success && !has_none) list.absence = absence_of(more);
    return more == Return::success || has_none;
  };
  if ((all || how.has_mps_server) &&
      !read(lists.ask(calls.DeviceGetMPSComputeRunningProcesses_v3, calls.DeviceGetMPSComputeRunningProcesses_v2,
                      calls.DeviceGetMPSComputeRunningProcesses, true)))
    return Return::unknown;
  if (all && !read(lists.ask(calls.DeviceGetGraphicsRunningProcesses_v3, calls.DeviceGetGraphicsRunningProcesses_v2,
                             calls.DeviceGetGraphicsRunningProcesses, false)))
    return Return::unknown;
  list.proofs.look(std::span(list.processes).subspan(compute), how, buffers.root);
  list.proofs.end_list();
  return code;
}

// The lists of the driver into one: processes with a compute context, the clients of an MPS server where there is one,
// and with `all` those who only draw. The answer of the first list decides; its reason is kept where it fails.
// `prove_all`: every process is looked at now, however many there are.
Return list_processes(const NvmlCalls& calls, nvml::Device handle, const Device& device, bool all, bool prove_all,
                      NvmlBuffers& buffers, GpuProcessList& list) {
  if (!buffers.first_namespace) buffers.first_namespace = first_pid_namespace(buffers.root);
  list.all = all;
  const std::vector<DeviceFile> files = proof_files(device, buffers.root);
  const ProcessProofs::How how{
      .files = files, .numbers_are_ours = buffers.first_namespace.value_or(false), .all = prove_all};
  const Return code = list_once(calls, handle, all, how, buffers, list);
  // Whoever ended while we looked is not in a second list; a number that stays there is stale.
  return code == Return::success && list.proofs.found_stale() ? list_once(calls, handle, all, how, buffers, list)
                                                              : code;
}

// What counts as `procs`: an MPS server serves others, and counts through its clients.
std::size_t count_working(const std::vector<GpuProcess>& processes) {
  return static_cast<std::size_t>(std::ranges::count_if(
      processes, [](const GpuProcess& process) { return process.compute && !process.mps_server; }));
}

// ---- the values of a device

constexpr std::size_t kSampleCapacity = 1024;        // well above any driver's buffer
constexpr double kNothingUsed = 64.0 * 1024 * 1024;  // bytes, what the driver reserves left out: less than any context

bool device_gone(Return code) {
  return driver_gone(code) || code == Return::gpu_is_lost || code == Return::reset_required ||
         code == Return::gpu_not_found;
}

// "MemAvailable:   12345 kB" -> bytes.
std::optional<double> meminfo(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with(name)) continue;
    for (const std::string_view word : split(line.substr(name.size()), ' '))
      if (const auto number = to_unsigned(word)) return static_cast<double>(*number) * 1024;
  }
  return std::nullopt;
}

// Reads one device into one reading: a GPU, or a MIG device of one. Ends early where the device as a whole is gone.
class Reader {
 public:
  Reader(const NvmlCalls& calls, nvml::Device handle, const Device& device, NvmlMemory& memory, const Needs& needs,
         Instant now, NvmlBuffers& buffers, Reading& reading)
      : calls_(calls),
        handle_(handle),
        device_(device),
        memory_(memory),
        needs_(needs),
        now_(now),
        buffers_(buffers),
        reading_(reading) {}

  void gpu(bool display_active) {
    if (!util() || !device_memory(needs_.processes && !shows_everybody())) return;
    if (needs_.power) power();
    if (needs_.details) details();
    if (needs_.processes || (needs_.memory && unified_)) list(needs_.all_lists || display_active);
    if (needs_.processes) processes();
    if (needs_.memory && unified_) estimate_memory();
    if (needs_.shares && fatal_ == Return::success) shares();
    if (needs_.pcie) pcie();
  }

  // A MIG device has memory and processes, and counters; all else belongs to the whole card.
  void part() {
    for (const Metric metric : kPowerMetrics) reading_.miss(metric, Absence::not_supported);
    for (const Metric metric : kDetailMetrics) reading_.miss(metric, Absence::not_supported);
    reading_.miss(Metric::pcie, Absence::not_supported);
    if (needs_.shares) reading_.shares_absence = Absence::not_supported;  // the driver has them of whole GPUs
    if (!util() || !device_memory(needs_.processes && !shows_everybody()) || !needs_.processes) return;
    list(needs_.all_lists);
    processes();
  }

  // ---- the chip's own counters: after all else of the GPU and its MIG devices. On some drivers they spoil what is
  // asked of those right after.

  // A first sample was taken just now: the next one is to be a little later.
  bool begin_counters(nvml::Device card) {
    return wants_counters() && memory_.gpm.begin(calls_, {card, device_.gpu_instance}, clock());
  }

  void counters(nvml::Device card) {
    if (!wants_counters()) return no_counters();
    const GpmTake take = memory_.gpm.take(calls_, {card, device_.gpu_instance}, clock());
    if (device_gone(take.code)) fatal_ = take.code;
    reading_.counters_span = take.span;
    if (device_.kind == DeviceKind::mig) util_by_counters(take);
    if (!needs_.counters) return;
    for (const auto& [metric, value] :
         {std::pair{Metric::sm, take.sm}, {Metric::tensor, take.tensor}, {Metric::dram, take.dram}}) {
      if (value.absence == Absence::none)
        reading_.set(metric, value.percent);
      else
        reading_.miss(metric, value.absence);
    }
  }

  // A card that is cut has none of its own: its MIG devices do.
  void no_counters() {
    for (const Metric metric : kCounterMetrics)
      if (needs_.counters) reading_.miss(metric, Absence::not_supported);
  }

  // What the means need, and nothing into the reading.
  void look() {
    nvml::Utilization rates{};
    look_util(memory_.util.ring_due(now_, false), rates);
    if (memory_.shares_wanted && memory_.shares.due(now_)) look_shares();
    if (!memory_.power_wanted || !memory_.power.due(now_)) return;
    std::optional<std::uint64_t> millijoules;
    look_power(millijoules);
  }

  Return fatal() const { return fatal_; }            // the device, or the driver, is gone
  bool invalid() const { return invalid_; }          // the handle may be void
  bool from_memory() const { return from_memory_; }  // the processes are those of an earlier sample

 private:
  bool wants_counters() const {
    if (fatal_ != Return::success) return false;
    return device_.kind == DeviceKind::mig ? device_.gpu_instance.has_value() : needs_.counters;
  }

  // A MIG device's utilisation. The counters are of its whole GPU instance: where that is divided further, a
  // neighbour's work is in it too. Multiprocessors that work are never less than that.
  void util_by_counters(const GpmTake& take) {
    const bool known = take.graphics.absence == Absence::none;
    const bool has_none =
        take.graphics.absence == Absence::not_supported || take.graphics.absence == Absence::no_symbol;
    if (known) {
      const double percent = take.sm.percent > take.graphics.percent ? take.sm.percent : take.graphics.percent;
      reading_.set(Metric::util, percent);
      reading_.util_newest = {percent, percent};
      reading_.util_basis = take.first ? Basis::instant : Basis::mean;
      reading_.util_coverage = take.first ? 0 : 1;
    } else if (!has_none && reading_.why_missing(Metric::util) != Absence::none) {
      reading_.miss(Metric::util, take.graphics.absence);
    }
  }

  const Clock& clock() const {
    static const SystemClock kSystem;
    return buffers_.clock != nullptr ? *buffers_.clock : kSystem;
  }

  // Notes what concerns more than the one value.
  Return note(Return code) {
    if (code == Return::success) [[likely]]
      return code;
    if (device_gone(code)) fatal_ = code;
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

  // ---- utilisation

  RingLook look_ring() {
    unsigned type = 0;
    auto count = static_cast<unsigned>(kSampleCapacity);
    if (buffers_.samples.size() < kSampleCapacity) buffers_.samples.resize(kSampleCapacity);
    // All that it holds: asking only for what is new would go blind when the driver's clock is set back.
    const Return code = ask(calls_.DeviceGetSamples, handle_, unsigned{nvml::kSamplesGpuUtil}, 0ULL, &type, &count,
                            buffers_.samples.data());
    if (device_gone(code)) fatal_ = code;
    RingLook look;
    look.state = RingLook::State::read;
    if (code == Return::not_found) return look;  // dry
    look.state = RingLook::State::none;
    if (code != Return::success) return look;
    const std::span<const nvml::Sample> samples(buffers_.samples.data(), std::min<std::size_t>(count, kSampleCapacity));
    const auto spans = memory_.ring.place(samples, type, now_, RingClocks::at(clock(), now_));
    if (!spans) return look;  // of some other time
    look.state = RingLook::State::read;
    look.spans = *spans;
    look.usual = memory_.ring.usual();
    return look;
  }

  Moment look_util(bool ring, nvml::Utilization& rates) {
    const Return code = call(calls_.DeviceGetUtilizationRates, &rates);
    Moment moment{.value = {}, .why = absence_of(code)};
    if (code == Return::success && plausible(Metric::util, rates.gpu))
      moment.value = rates.gpu;
    else if (code == Return::success)
      moment.why = Absence::implausible;
    if (fatal_ != Return::success) return moment;
    const RingLook seen = ring ? look_ring() : RingLook{};
    if (fatal_ != Return::success) return moment;
    if (needs_.idle_before) reading_.idle_before = idle_tail(seen.spans, now_);
    memory_.util.look(now_, moment.value, seen);
    moment.other = seen.state == RingLook::State::read;
    return moment;
  }

  bool util() {
    nvml::Utilization rates{};
    const Moment moment = look_util((!needs_.once || needs_.idle_before) && memory_.util.ring_due(now_, true), rates);
    if (fatal_ != Return::success) return false;
    if (moment.why == Absence::none || moment.why == Absence::implausible)
      reading_.set(Metric::mem_util, rates.memory);
    else
      reading_.miss(Metric::mem_util, moment.why);
    publish_util(reading_, memory_.util.take(now_), moment);
    return true;
  }

  // ---- power

  Moment momentary_power() {
    Moment moment;
    nvml::FieldValue field{};
    field.field_id = nvml::kFieldPowerAverage;
    field.scope_id = nvml::kPowerScopeGpu;
    if (memory_.power.counts_the_module() && call(calls_.DeviceGetFieldValues, 1, &field) == Return::success &&
        field.result == Return::success) {
      const double watts = number_of(field.value, field.value_type) * 0.001;
      if (plausible(Metric::power, watts)) moment.value = watts;
      if (moment.value) return moment;
    }
    unsigned milliwatts = 0;
    const Return code = call(calls_.DeviceGetPowerUsage, &milliwatts);
    moment.why = absence_of(code);
    if (code != Return::success) return moment;
    if (const double watts = milliwatts * 0.001; plausible(Metric::power, watts))
      moment.value = watts;
    else
      moment.why = Absence::implausible;
    return moment;
  }

  // Only cards of a module (Grace Hopper) have power of that scope; of any other the counter is beyond doubt.
  void ask_for_module() {
    memory_.module_asked = true;
    nvml::FieldValue field{};
    field.field_id = nvml::kFieldPowerAverage;
    field.scope_id = nvml::kPowerScopeModule;
    const bool module =
        ask(calls_.DeviceGetFieldValues, handle_, 1, &field) == Return::success && field.result == Return::success;
    if (!module) memory_.power.trust_counter();
  }

  Moment look_power(std::optional<std::uint64_t>& millijoules) {
    if (!memory_.module_asked) ask_for_module();
    unsigned long long counted = 0;
    if (memory_.power.wants_counter() && call(calls_.DeviceGetTotalEnergyConsumption, &counted) == Return::success)
      millijoules = counted;
    const Instant exact = clock().now();
    Moment moment;
    // A sample that is to confirm (with lists of now) brings the moment's value in any case.
    const bool confirms = needs_.power && needs_.lists_every == Duration::zero();
    if (confirms || memory_.power.wants_moment(millijoules, exact)) moment = momentary_power();
    memory_.power.look(now_, millijoules, exact, moment.value);
    moment.other = millijoules.has_value();
    return moment;
  }

  void power() {
    std::optional<std::uint64_t> millijoules;
    const Moment moment = look_power(millijoules);
    constexpr std::uint64_t kMostMillijoules = 1'000'000'000'000'000;  // ten years at 3 kW
    if (millijoules && *millijoules <= kMostMillijoules && !memory_.power.counts_the_module())
      reading_.energy_joules = static_cast<double>(*millijoules) / 1000;
    publish(reading_, Metric::power, memory_.power.take(now_), moment);
    if (!std::isnan(reading_.power_newest.high))
      reading_.newest_span = std::max(reading_.newest_span, PowerMeter::kMomentIsOf);
    number(Metric::power_limit, 0.001, calls_.DeviceGetEnforcedPowerLimit);
    if (reading_.why_missing(Metric::power_limit) == Absence::no_symbol)
      number(Metric::power_limit, 0.001, calls_.DeviceGetPowerManagementLimit);
  }

  // ---- memory

  bool device_memory(bool for_processes) {
    if (!needs_.memory && !for_processes) return true;
    nvml::MemoryV2 memory{};
    Return code = Return::function_not_found;
    if (memory_.memory_call != MemoryCall::first) {
      memory.version = nvml::kMemoryV2;  // says what it leaves to programs: what it reserves is not in `used`
      code = call(calls_.DeviceGetMemoryInfo_v2, &memory);
    }
    if (code != Return::success && fatal_ == Return::success && memory_.memory_call != MemoryCall::second) {
      nvml::Memory first{};
      const Return old = call(calls_.DeviceGetMemoryInfo, &first);
      if (old != Return::function_not_found) code = old;
      memory.total = first.total;
      memory.free = first.free;
      memory.used = first.used;
      if (old == Return::success) memory_.memory_call = MemoryCall::first;
    } else if (code == Return::success) {
      memory_.memory_call = MemoryCall::second;
    }
    unified_ = code == Return::not_supported || (code == Return::success && memory.total == 0);
    const bool known = code == Return::success && !unified_;
    const bool makes_sense = known && plausible(Metric::mem_total, static_cast<double>(memory.total)) &&
                             memory.used <= memory.total && memory.free <= memory.total;
    if (makes_sense) used_ = static_cast<double>(memory.used);
    if (needs_.memory) {
      const auto give = [&](Metric metric, unsigned long long bytes) {
        if (makes_sense)
          reading_.set(metric, static_cast<double>(bytes));
        else
          reading_.miss(metric, known ? Absence::implausible : unified_ ? Absence::not_supported : absence_of(code));
      };
      give(Metric::mem_used, memory.used);
      give(Metric::mem_free, memory.free);
      give(Metric::mem_total, memory.total);
    }
    return fatal_ == Return::success;
  }

  // A card that shares the machine's memory: used is what its processes hold, free what the machine has left.
  void estimate_memory() {
    const auto text = read_file(AT_FDCWD, buffers_.root.proc + "/meminfo", 65536);
    if (!text) return;
    const auto total = meminfo(*text, "MemTotal:");
    const auto available = meminfo(*text, "MemAvailable:");
    if (!total || !available) return;
    reading_.memory_estimated = true;
    reading_.set(Metric::mem_total, *total);
    reading_.set(Metric::mem_free, *available);
    const GpuProcessList& list = memory_.list;
    if (list.absence != Absence::none) return reading_.miss(Metric::mem_used, list.absence);
    if (!shows_everybody()) return reading_.miss(Metric::mem_used, Absence::hidden);
    double used = 0;
    for (const GpuProcess& process : list.processes) {
      if (!process.memory_bytes) return reading_.miss(Metric::mem_used, Absence::not_supported);
      used += static_cast<double>(*process.memory_bytes);
    }
    reading_.set(Metric::mem_used, used);
  }

  // ---- processes

  bool shows_everybody() {
    if (!buffers_.first_namespace) buffers_.first_namespace = first_pid_namespace(buffers_.root);
    return buffers_.first_namespace.value_or(false);
  }

  void list(bool all) {
    GpuProcessList& list = memory_.list;
    // Whoever samples at just that distance is not to be a hair too early every other time; a list that was early does
    // not make the next one early as well.
    const Duration early = needs_.lists_every / 10;
    const Instant due = list.at ? *list.at + needs_.lists_every : now_;
    // Whose the shares are goes by this list.
    from_memory_ = !needs_.shares && list.at && now_ >= *list.at - early && now_ < due - early && (list.all || !all);
    if (from_memory_) return;
    note(list_processes(calls_, handle_, device_, all, needs_.lists_every == Duration::zero(), buffers_, list));
    list.at = now_ < due && due - now_ <= early ? due : now_;
  }

  void processes() {
    const GpuProcessList& list = memory_.list;
    if (list.absence != Absence::none) {
      reading_.miss(Metric::procs, list.absence);
      reading_.processes.reset();
      return;
    }
    if (!reading_.processes) reading_.processes.emplace();
    reading_.processes->assign(list.processes.begin(), list.processes.end());
    reading_.processes_hidden = !shows_everybody();
    if (!reading_.processes_hidden)
      reading_.set(Metric::procs, static_cast<double>(count_working(list.processes)));
    else if (list.processes.empty() && used_ && *used_ <= kNothingUsed)
      reading_.set(Metric::procs, 0);  // no process can be there without memory
    else
      reading_.miss(Metric::procs, Absence::hidden);
  }

  // ---- what each process did

  void look_shares() {
    constexpr unsigned kMostShares = 1U << 14;
    const unsigned long long since = memory_.shares.last_seen();
    std::vector<nvml::ProcessUtilization>& out = buffers_.shares;
    unsigned count = 0;
    // As documented: how many there are comes first. There may be more by the second call.
    Return code = ask(calls_.DeviceGetProcessUtilization, handle_, static_cast<nvml::ProcessUtilization*>(nullptr),
                      &count, since);
    for (int tries = 0; tries < 3 && code == Return::insufficient_size; ++tries) {
      if (count > kMostShares) {  // nonsense
        code = Return::unknown;
        break;
      }
      out.resize(std::max<std::size_t>(out.size(), count + std::size_t{16}));
      count = static_cast<unsigned>(out.size());
      code = ask(calls_.DeviceGetProcessUtilization, handle_, out.data(), &count, since);
      if (code == Return::success && count > out.size()) code = Return::unknown;
    }
    if (device_gone(code)) fatal_ = code;
    if (code == Return::success) count = std::min(count, static_cast<unsigned>(out.size()));
    memory_.shares.look(now_, code, std::span(out.data(), code == Return::success ? count : 0),
                        RingClocks::at(clock(), now_));
  }

  void shares() {
    look_shares();
    if (fatal_ == Return::success) memory_.shares.take(now_, reading_);
  }

  // ---- the rest

  void details() {
    number(Metric::temp, 1, calls_.DeviceGetTemperature, unsigned{nvml::kTemperatureGpu});
    number(Metric::fan, 1, calls_.DeviceGetFanSpeed);
    number(Metric::clock, 1, calls_.DeviceGetClockInfo, unsigned{nvml::kClockSm});
    number(Metric::pstate, 1, calls_.DeviceGetPerformanceState);
    unsigned mhz = 0;
    if (call(calls_.DeviceGetClockInfo, unsigned{nvml::kClockMemory}, &mhz) == Return::success &&
        plausible(Metric::clock, mhz))
      reading_.mem_clock_mhz = mhz;
    unsigned long long reasons = 0;
    Return code = call(calls_.DeviceGetCurrentClocksEventReasons, &reasons);
    if (code == Return::function_not_found) code = call(calls_.DeviceGetCurrentClocksThrottleReasons, &reasons);
    if (code == Return::success) reading_.throttle_reasons = reasons;
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
  const Device& device_;
  NvmlMemory& memory_;
  const Needs& needs_;
  const Instant now_;
  NvmlBuffers& buffers_;
  Reading& reading_;
  Return fatal_ = Return::success;
  bool invalid_ = false;
  bool from_memory_ = false;
  bool unified_ = false;        // the card has no memory of its own
  std::optional<double> used_;  // bytes
};

constexpr Duration kLookAgain = std::chrono::seconds(5);   // a GPU that fails may have a new handle
constexpr Duration kLookAtMig = std::chrono::seconds(10);  // MIG devices come and go while we run
constexpr Duration kSeldom = std::chrono::seconds(5);      // a display, the MIG mode

// As new, but the capacity of its list is kept.
void clear(Reading& reading) {
  static const Reading kBlank;
  std::vector<GpuProcess> buffers;
  if (reading.processes) buffers = std::move(*reading.processes);
  buffers.clear();
  reading = kBlank;
  reading.processes.emplace(std::move(buffers));
}

// Not one value: the device as a whole does not work. What was read earlier does not count.
Absence nothing_read(const Reading& reading, bool processes_from_memory) {
  Absence why = Absence::none;
  for (const MetricInfo& row : kMetricTable) {
    const Absence absence = reading.why_missing(row.metric);
    if (row.of != Of::gpu || absence == Absence::not_asked) continue;
    if (row.metric == Metric::procs && processes_from_memory) continue;
    if (absence == Absence::none || absence == Absence::not_covered || absence == Absence::no_baseline)
      return Absence::none;
    if (why == Absence::none || why == Absence::not_supported) why = absence;
  }
  return why;
}

void close(Reading& reading, const Reader& reader, const Needs& needs) {
  if (reader.fatal() != Return::success) return reading.miss_all(absence_of(reader.fatal()));
  if (!needs.processes) reading.processes.reset();
  reading.device_absence = nothing_read(reading, reader.from_memory());
  if (reading.device_absence == Absence::none || !reader.from_memory()) return;
  reading.miss(Metric::procs, reading.device_absence);
  reading.processes.reset();
}

// What seldom changes: whether a display is active, persistence mode, and whether the GPU was split into MIG devices or
// joined again, after which it is identified again.
void look_seldom(const NvmlCalls& calls, NvmlGpu& gpu, Instant now) {
  if (gpu.seldom_at && now >= *gpu.seldom_at && now - *gpu.seldom_at < kSeldom) return;
  gpu.seldom_at = now;
  unsigned active = 0;
  const Return display = ask(calls.DeviceGetDisplayActive, gpu.handle, &active);
  gpu.display_active = display == Return::success ? std::optional(active == nvml::kFeatureEnabled) : std::nullopt;
  unsigned keeps = 0;
  const Return persistence = ask(calls.DeviceGetPersistenceMode, gpu.handle, &keeps);
  gpu.persistence = persistence == Return::success ? std::optional(keeps == nvml::kFeatureEnabled) : std::nullopt;
  if (!gpu.mig_mode) return;  // it cannot be cut
  unsigned current = 0;
  unsigned pending = 0;
  const Return mode = ask(calls.DeviceGetMigMode, gpu.handle, &current, &pending);
  if (mode == Return::success && (current == nvml::kMigEnabled) != *gpu.mig_mode) gpu.identified = false;
}

// It is gone, or so it seems: what it did in that time was not measured.
void lost_observation(NvmlMemory& memory) {
  memory.util.restart();
  memory.power.restart();
  memory.shares.restart();
  memory.gpm.restart();
  memory.list.at.reset();
}

void lost_observation(NvmlGpu& gpu) {
  lost_observation(gpu.memory);
  for (NvmlPart& part : gpu.parts) part.memory.gpm.restart();
}

// Of the whole card where that is one, else of its MIG devices. The first sample of all has to wait a little for a
// second one of the driver's.
void read_counters(const NvmlGpu& gpu, Reader& whole, std::vector<Reader>& parts, const NvmlBuffers& buffers) {
  const bool cut = gpu.mig_mode.value_or(false);
  bool begun = !cut && whole.begin_counters(gpu.handle);
  for (Reader& part : parts) begun = part.begin_counters(gpu.handle) || begun;
  constexpr Duration kPause = GpmMeter::kShortest + std::chrono::milliseconds(2);
  if (begun && buffers.pause != nullptr)
    buffers.pause(kPause);
  else if (begun)
    std::this_thread::sleep_for(kPause);
  if (cut)
    whole.no_counters();
  else
    whole.counters(gpu.handle);
  for (Reader& part : parts) part.counters(gpu.handle);
}

bool must_identify(const NvmlGpu& gpu, Instant now) {
  return !gpu.identified || (gpu.mig_mode.value_or(false) && now - gpu.identified_at > kLookAtMig);
}

}  // namespace

void sample_gpu(const NvmlCalls& calls, NvmlGpu& gpu, const Needs& needs, Instant now, NvmlBuffers& buffers,
                Answer& answer) {
  answer.driver_gone = false;
  Return code = Return::success;
  if (gpu.identified) look_seldom(calls, gpu, now);
  if (must_identify(gpu, now)) {
    code = identify(calls, gpu, now);
    if (code == Return::success) look_seldom(calls, gpu, now);
  }
  answer.parts.resize(gpu.parts.size());
  if (code != Return::success) {
    answer.driver_gone = driver_gone(code);
    lost_observation(gpu);
    answer.gpu.miss_all(absence_of(code));
    for (Reading& part : answer.parts) part.miss_all(absence_of(code));
    return;
  }
  clear(answer.gpu);
  gpu.memory.power_wanted = needs.power;
  gpu.memory.shares_wanted = needs.shares;
  Reader reader(calls, gpu.handle, gpu.device, gpu.memory, needs, now, buffers, answer.gpu);
  reader.gpu(gpu.display_active.value_or(false));
  std::vector<Reader> parts;
  parts.reserve(gpu.parts.size());
  for (std::size_t i = 0; i < gpu.parts.size(); ++i) {
    NvmlPart& mig = gpu.parts[i];
    clear(answer.parts[i]);
    parts.emplace_back(calls, mig.handle, mig.device, mig.memory, needs, now, buffers, answer.parts[i]).part();
  }
  read_counters(gpu, reader, parts, buffers);
  close(answer.gpu, reader, needs);
  if (reader.fatal() != Return::success)
    lost_observation(gpu);
  else if (answer.gpu.device_absence != Absence::none)  // of one that is cut nothing may be read but its MIG devices
    lost_observation(gpu.memory);
  answer.gpu.mig_mode = gpu.mig_mode;
  answer.driver_gone = driver_gone(reader.fatal());
  for (std::size_t i = 0; i < gpu.parts.size(); ++i) {
    close(answer.parts[i], parts[i], needs);
    if (parts[i].invalid()) gpu.identified = false;  // the MIG devices are not what they were: look again
    if (gpu.attached_at) answer.parts[i].attached_for = now - *gpu.attached_at;
  }
  if (reader.fatal() == Return::success) {
    answer.gpu.display_active = gpu.display_active;
    answer.gpu.persistence = gpu.persistence;
    if (gpu.attached_at) answer.gpu.attached_for = now - *gpu.attached_at;
  }
  // A GPU that does not answer may do so under a new handle, after it was reset.
  if (answer.gpu.device_absence != Absence::none && now - gpu.identified_at > kLookAgain) gpu.identified = false;
}

void look_gpu(const NvmlCalls& calls, NvmlGpu& gpu, Instant now, NvmlBuffers& buffers) {
  if (!gpu.identified) return;
  static const Needs kNothing{};
  Reading unused;
  Reader(calls, gpu.handle, gpu.device, gpu.memory, kNothing, now, buffers, unused).look();
}

Duration look_within(const NvmlGpu& gpu) {
  if (!gpu.identified) return kNoLook;
  const Duration power = gpu.memory.power_wanted ? gpu.memory.power.look_within() : kNoLook;
  const Duration shares = gpu.memory.shares_wanted ? ShareMeter::kLookWithin : kNoLook;
  return std::min({gpu.memory.util.look_within(), power, shares});
}

}  // namespace lull
