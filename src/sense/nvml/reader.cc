#include "sense/nvml/reader.h"

#include <algorithm>
#include <string_view>

#include "base/text.h"
#include "sense/nvml/tenants.h"

namespace lull {
namespace {

using nvml::Return;

constexpr std::size_t kSampleRoom = 1024;            // well above any driver's buffer
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

}  // namespace

const Clock& Reader::clock() const {
  static const SystemClock kSystem;
  return room_.clock != nullptr ? *room_.clock : kSystem;
}

// Notes what concerns more than the one value.
Return Reader::note(Return code) {
  if (code == Return::success) [[likely]]
    return code;
  if (device_gone(code)) fatal_ = code;
  if (code == Return::invalid_argument || code == Return::not_found) invalid_ = true;
  return code;
}

// One unsigned number, scaled, into one metric.
template <class Function, class... Arguments>
void Reader::number(Metric metric, double scale, Function* function, Arguments... arguments) {
  unsigned value = 0;
  const Return code = call(function, arguments..., &value);
  if (code == Return::success)
    reading_.set(metric, value * scale);
  else
    reading_.miss(metric, absence_of(code));
}

void Reader::gpu(bool display_active) {
  if (!util() || !device_memory(needs_.tenants && !shows_everybody())) return;
  if (needs_.power) power();
  if (needs_.details) details();
  if (needs_.tenants || (needs_.memory && unified_)) list(needs_.all_lists || display_active);
  if (needs_.tenants) tenants();
  if (needs_.memory && unified_) estimate_memory();
  if (needs_.pcie) pcie();
}

void Reader::part() {
  for (const Metric metric : kPowerMetrics) reading_.miss(metric, Absence::not_supported);
  for (const Metric metric : kDetailMetrics) reading_.miss(metric, Absence::not_supported);
  reading_.miss(Metric::pcie, Absence::not_supported);
  if (!util() || !device_memory(needs_.tenants && !shows_everybody()) || !needs_.tenants) return;
  list(needs_.all_lists);
  tenants();
}

void Reader::look() {
  nvml::Utilization rates{};
  look_util(memory_.util.ring_due(now_, false), rates);
  if (!memory_.power_wanted || !memory_.power.due(now_)) return;
  std::optional<std::uint64_t> millijoules;
  look_power(millijoules);
}

// ---- utilisation

RingLook Reader::look_ring() {
  unsigned type = 0;
  auto count = static_cast<unsigned>(kSampleRoom);
  if (room_.samples.size() < kSampleRoom) room_.samples.resize(kSampleRoom);
  // All that it holds: asking only for what is new would go blind when the driver's clock is set back.
  const Return code =
      ask(calls_.DeviceGetSamples, handle_, unsigned{nvml::kSamplesGpuUtil}, 0ULL, &type, &count, room_.samples.data());
  if (device_gone(code)) fatal_ = code;
  RingLook look;
  look.state = RingLook::State::read;
  if (code == Return::not_found) return look;  // dry
  look.state = RingLook::State::none;
  if (code != Return::success) return look;
  const std::span<const nvml::Sample> samples(room_.samples.data(), std::min<std::size_t>(count, kSampleRoom));
  const auto spans = memory_.ring.place(samples, type, now_, RingClocks::at(clock(), now_));
  if (!spans) return look;  // of some other time
  look.state = RingLook::State::read;
  look.spans = *spans;
  look.usual = memory_.ring.usual();
  return look;
}

Reader::Moment Reader::look_util(bool ring, nvml::Utilization& rates) {
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

// What cannot be measured says why; what was measured for a part of the time only says that.
void Reader::publish(Metric metric, const MeterTake& take, const Moment& moment, Basis& basis, double& coverage) {
  coverage = take.coverage;
  // The card has just refused to answer: what it said before that is not how it is now.
  const bool refused = !moment.value && !moment.other && moment.why != Absence::none;
  if (take.absence == Absence::none && !refused) {
    reading_.set(metric, take.mean);
    basis = take.basis;
  } else {
    const bool fails = moment.why != Absence::none && (take.coverage == 0 || !moment.other);
    reading_.miss(metric, fails ? moment.why : take.absence);
  }
}

bool Reader::util() {
  nvml::Utilization rates{};
  const Moment moment = look_util((!needs_.once || needs_.idle_before) && memory_.util.ring_due(now_, true), rates);
  if (fatal_ != Return::success) return false;
  if (moment.why == Absence::none || moment.why == Absence::implausible)
    reading_.set(Metric::mem_util, rates.memory);
  else
    reading_.miss(Metric::mem_util, moment.why);
  publish(Metric::util, memory_.util.take(now_), moment, reading_.util_basis, reading_.util_coverage);
  return true;
}

// ---- power

Reader::Moment Reader::momentary_power() {
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
void Reader::ask_for_module() {
  memory_.module_asked = true;
  nvml::FieldValue field{};
  field.field_id = nvml::kFieldPowerAverage;
  field.scope_id = nvml::kPowerScopeModule;
  const bool module =
      ask(calls_.DeviceGetFieldValues, handle_, 1, &field) == Return::success && field.result == Return::success;
  if (!module) memory_.power.trust_counter();
}

Reader::Moment Reader::look_power(std::optional<std::uint64_t>& millijoules) {
  if (!memory_.module_asked) ask_for_module();
  unsigned long long counted = 0;
  if (memory_.power.wants_counter() && call(calls_.DeviceGetTotalEnergyConsumption, &counted) == Return::success)
    millijoules = counted;
  const Instant exact = clock().now();
  Moment moment;
  if (memory_.power.wants_moment(millijoules, exact)) moment = momentary_power();
  memory_.power.look(now_, millijoules, exact, moment.value);
  moment.other = millijoules.has_value();
  return moment;
}

void Reader::power() {
  std::optional<std::uint64_t> millijoules;
  const Moment moment = look_power(millijoules);
  constexpr std::uint64_t kMostMillijoules = 1'000'000'000'000'000;  // ten years at 3 kW
  if (millijoules && *millijoules <= kMostMillijoules && !memory_.power.counts_the_module())
    reading_.energy_joules = static_cast<double>(*millijoules) / 1000;
  publish(Metric::power, memory_.power.take(now_), moment, reading_.power_basis, reading_.power_coverage);
  number(Metric::power_limit, 0.001, calls_.DeviceGetEnforcedPowerLimit);
  if (reading_.why_missing(Metric::power_limit) == Absence::no_symbol)
    number(Metric::power_limit, 0.001, calls_.DeviceGetPowerManagementLimit);
}

// ---- memory

bool Reader::device_memory(bool for_tenants) {
  if (!needs_.memory && !for_tenants) return true;
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

// A card that shares the machine's memory: used is what its tenants hold, free what the machine has left.
void Reader::estimate_memory() {
  const auto text = read_file(AT_FDCWD, room_.root.proc + "/meminfo", 65536);
  if (!text) return;
  const auto total = meminfo(*text, "MemTotal:");
  const auto available = meminfo(*text, "MemAvailable:");
  if (!total || !available) return;
  reading_.memory_estimated = true;
  reading_.set(Metric::mem_total, *total);
  reading_.set(Metric::mem_free, *available);
  const TenantList& list = memory_.list;
  if (list.absence != Absence::none) return reading_.miss(Metric::mem_used, list.absence);
  if (!shows_everybody()) return reading_.miss(Metric::mem_used, Absence::hidden);
  double used = 0;
  for (const Tenant& tenant : list.tenants) {
    if (!tenant.memory_bytes) return reading_.miss(Metric::mem_used, Absence::not_supported);
    used += static_cast<double>(*tenant.memory_bytes);
  }
  reading_.set(Metric::mem_used, used);
}

// ---- tenants

bool Reader::shows_everybody() {
  if (!room_.first_namespace) room_.first_namespace = first_pid_namespace(room_.root);
  return *room_.first_namespace;
}

void Reader::list(bool all) {
  TenantList& list = memory_.list;
  // Whoever samples at just that distance is not to be a hair too early every other time; a list that was early does
  // not make the next one early as well.
  const Duration early = needs_.lists_every / 10;
  const Instant due = list.at ? *list.at + needs_.lists_every : now_;
  from_memory_ = list.at && now_ >= *list.at - early && now_ < due - early && (list.all || !all);
  if (from_memory_) return;
  note(list_tenants(calls_, handle_, device_, all, room_, list));
  list.at = now_ < due && due - now_ <= early ? due : now_;
}

void Reader::tenants() {
  const TenantList& list = memory_.list;
  if (list.absence != Absence::none) {
    reading_.miss(Metric::procs, list.absence);
    reading_.tenants.reset();
    return;
  }
  if (!reading_.tenants) reading_.tenants.emplace();
  reading_.tenants->assign(list.tenants.begin(), list.tenants.end());
  reading_.processes_hidden = !shows_everybody();
  if (!reading_.processes_hidden)
    reading_.set(Metric::procs, static_cast<double>(working_tenants(list.tenants)));
  else if (list.tenants.empty() && used_ && *used_ <= kNothingUsed)
    reading_.set(Metric::procs, 0);  // nobody can be there without memory
  else
    reading_.miss(Metric::procs, Absence::hidden);
}

// ---- the rest

void Reader::details() {
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

void Reader::pcie() {
  unsigned sent = 0;
  unsigned received = 0;
  Return code = call(calls_.DeviceGetPcieThroughput, unsigned{nvml::kPcieTx}, &sent);
  if (code == Return::success) code = call(calls_.DeviceGetPcieThroughput, unsigned{nvml::kPcieRx}, &received);
  if (code == Return::success)
    reading_.set(Metric::pcie, (static_cast<double>(sent) + received) * 1024);
  else
    reading_.miss(Metric::pcie, absence_of(code));
}

}  // namespace lull
