#include "sense/wire.h"

#include <cmath>

#include "sense/sensor.h"

#include "sense/board.h"

namespace lull {
namespace {

constexpr std::size_t kMostText = 64 << 10;
constexpr std::size_t kMostParts = 64;
constexpr std::size_t kMostTenants = 1 << 16;
constexpr std::size_t kMostInReport = 1 << 16;
constexpr std::size_t kMostArguments = 1 << 14;
constexpr Absence kLastAbsence = Absence::no_beat;
constexpr Basis kLastBasis = Basis::moments;
constexpr std::int64_t kLongestTime = std::int64_t{1} << 62;

void put_text_list(Encoder& out, const std::vector<std::string>& list) {
  out.put(static_cast<std::uint32_t>(list.size()));
  for (const std::string& one : list) out.text(one);
}

void put(Encoder& out, Duration time) { out.put(std::int64_t{time.count()}); }

bool get(Decoder& in, Duration& time) {
  std::int64_t count = 0;
  if (!in.get(count) || count < 0 || count > kLongestTime) return false;
  time = Duration(count);
  return true;
}

void put(Encoder& out, const std::optional<Duration>& time) {
  out.put(static_cast<std::uint8_t>(time.has_value()));
  if (time) put(out, *time);
}

bool get(Decoder& in, std::optional<Duration>& time) {
  bool there = false;
  if (!in.flag(there)) return false;
  if (!there) return time.reset(), true;
  return get(in, time.emplace());
}

void put(Encoder& out, const std::optional<bool>& value) { out.put(static_cast<std::uint8_t>(value ? *value : 2)); }

bool get(Decoder& in, std::optional<bool>& value) {
  std::uint8_t byte = 0;
  if (!in.get(byte) || byte > 2) return false;
  value = byte == 2 ? std::nullopt : std::optional(byte == 1);
  return true;
}

void put(Encoder& out, const Device& device) {
  out.put(device.kind);
  out.put(device.index);
  out.put(device.mig_index);
  for (const std::string* text : {&device.uuid, &device.name, &device.pci}) out.text(*text);
  out.maybe(device.minor);
  out.maybe(device.gpu_instance);
  out.maybe(device.compute_instance);
  out.maybe(device.speed);
  out.put(device.absence);
}

bool get(Decoder& in, Device& device) {
  return in.one_of(device.kind, DeviceKind::mig) && in.get(device.index) && in.get(device.mig_index) &&
         in.text(device.uuid, kMostText) && in.text(device.name, kMostText) && in.text(device.pci, kMostText) &&
         in.maybe(device.minor) && in.maybe(device.gpu_instance) && in.maybe(device.compute_instance) &&
         in.maybe(device.speed) && in.one_of(device.absence, kLastAbsence);
}

void put(Encoder& out, const Tenant& tenant) {
  out.put(tenant.pid);
  out.put(static_cast<std::uint8_t>((tenant.compute ? 1 : 0) | (tenant.graphics ? 2 : 0) | (tenant.mps_server ? 4 : 0) |
                                    (tenant.here ? 8 : 0)));
  out.maybe(tenant.memory_bytes);
  out.maybe(tenant.gpu_instance);
}

bool get(Decoder& in, Tenant& tenant) {
  std::uint8_t bits = 0;
  if (!in.get(tenant.pid) || !in.get(bits) || bits > 15) return false;
  tenant.compute = (bits & 1) != 0;
  tenant.graphics = (bits & 2) != 0;
  tenant.mps_server = (bits & 4) != 0;
  tenant.here = (bits & 8) != 0;
  return in.maybe(tenant.memory_bytes) && in.maybe(tenant.gpu_instance);
}

// The fixed part of a reading in one piece: it is what every sample of every GPU has.
struct Fixed {
  std::array<double, kMetrics> value;
  std::array<Absence, kMetrics> absence;
  Basis util_basis;
  Basis power_basis;
  Absence device_absence;
  std::uint8_t asleep;
  std::uint8_t memory_estimated;
  std::uint8_t processes_hidden;
  double util_coverage;
  double power_coverage;
};

void put(Encoder& out, const Reading& reading) {
  Fixed fixed;
  std::memset(static_cast<void*>(&fixed), 0, sizeof fixed);
  fixed.value = reading.value;
  fixed.absence = reading.absence;
  fixed.util_basis = reading.util_basis;
  fixed.power_basis = reading.power_basis;
  fixed.device_absence = reading.device_absence;
  fixed.asleep = reading.asleep ? 1 : 0;
  fixed.memory_estimated = reading.memory_estimated ? 1 : 0;
  fixed.processes_hidden = reading.processes_hidden ? 1 : 0;
  fixed.util_coverage = reading.util_coverage;
  fixed.power_coverage = reading.power_coverage;
  out.put(fixed);
  put(out, reading.idle_before);
  put(out, reading.attached_for);
  out.maybe(reading.energy_joules);
  out.maybe(reading.mem_clock_mhz);
  out.maybe(reading.throttle_reasons);
  put(out, reading.mig_mode);
  put(out, reading.display_active);
  const std::uint32_t none = ~std::uint32_t{0};
  out.put(reading.tenants ? static_cast<std::uint32_t>(reading.tenants->size()) : none);
  if (reading.tenants)
    for (const Tenant& tenant : *reading.tenants) put(out, tenant);
}

// Each value is known and what its metric can be, or unknown with a reason.
bool sound(const Fixed& fixed) {
  for (std::size_t i = 0; i < kMetrics; ++i) {
    if (fixed.absence[i] > kLastAbsence) return false;
    const bool known = fixed.absence[i] == Absence::none;
    if (known ? !plausible(static_cast<Metric>(i), fixed.value[i]) : !std::isnan(fixed.value[i])) return false;
  }
  return fixed.util_basis <= kLastBasis && fixed.power_basis <= kLastBasis && fixed.device_absence <= kLastAbsence &&
         fixed.asleep <= 1 && fixed.memory_estimated <= 1 && fixed.processes_hidden <= 1 && fixed.util_coverage >= 0 &&
         fixed.util_coverage <= 1 && fixed.power_coverage >= 0 && fixed.power_coverage <= 1;
}

bool get(Decoder& in, Reading& reading) {
  Fixed fixed;
  if (!in.get(fixed) || !sound(fixed)) return false;
  reading.unanswered = {};
  reading.value = fixed.value;
  reading.absence = fixed.absence;
  reading.util_basis = fixed.util_basis;
  reading.power_basis = fixed.power_basis;
  reading.device_absence = fixed.device_absence;
  reading.asleep = fixed.asleep == 1;
  reading.memory_estimated = fixed.memory_estimated == 1;
  reading.processes_hidden = fixed.processes_hidden == 1;
  reading.util_coverage = fixed.util_coverage;
  reading.power_coverage = fixed.power_coverage;
  if (!get(in, reading.idle_before) || !get(in, reading.attached_for) || !in.maybe(reading.energy_joules) ||
      !in.maybe(reading.mem_clock_mhz) || !in.maybe(reading.throttle_reasons) || !get(in, reading.mig_mode) ||
      !get(in, reading.display_active))
    return false;
  std::uint32_t tenants = 0;
  if (!in.get(tenants)) return false;
  if (tenants == ~std::uint32_t{0}) return reading.tenants.reset(), true;
  if (tenants > kMostTenants) return false;
  std::vector<Tenant>& list = reading.tenants ? *reading.tenants : reading.tenants.emplace();
  list.clear();  // its memory is used again
  for (std::uint32_t i = 0; i < tenants; ++i)
    if (!get(in, list.emplace_back())) return false;
  return true;
}

void put(Encoder& out, const ProcessInfo& process) {
  out.put(process.pid);
  out.put(process.parent);
  out.put(process.start_ticks);
  out.maybe(process.started);
  out.put(process.uid);
  for (const std::string* text : {&process.user, &process.name, &process.cgroup, &process.container}) out.text(*text);
  put_text_list(out, process.arguments);
  out.put(process.state);
}

bool get(Decoder& in, ProcessInfo& process) {
  if (!in.get(process.pid) || !in.get(process.parent) || !in.get(process.start_ticks) || !in.maybe(process.started) ||
      !in.get(process.uid) || !in.text(process.user, kMostText) || !in.text(process.name, kMostText) ||
      !in.text(process.cgroup, kMostText) || !in.text(process.container, kMostText))
    return false;
  std::size_t arguments = 0;
  if (!in.count(arguments, kMostArguments)) return false;
  process.arguments.resize(arguments);
  for (std::string& argument : process.arguments)
    if (!in.text(argument, kMostText * 4)) return false;
  return in.get(process.state);
}

void put(Encoder& out, const Topology& topology) {
  out.put(static_cast<std::uint32_t>(topology.devices()));
  for (std::size_t a = 0; a < topology.devices(); ++a)
    for (std::size_t b = a + 1; b < topology.devices(); ++b) {
      const Join join = topology.between(a, b);
      out.put(join.nvlinks);
      out.put(join.nearness);
    }
}

bool get(Decoder& in, Topology& topology) {
  std::size_t devices = 0;
  if (!in.count(devices, kMostGpus)) return false;
  topology = Topology(devices);
  for (std::size_t a = 0; a < devices; ++a)
    for (std::size_t b = a + 1; b < devices; ++b) {
      Join join;
      if (!in.get(join.nvlinks) || !in.one_of(join.nearness, Nearness::board)) return false;
      topology.set(a, b, join);
    }
  return true;
}

}  // namespace

bool Decoder::text(std::string& value, std::size_t most) {
  std::uint32_t size = 0;
  if (!get(size) || size > most || size > bytes_.size()) return false;
  value.assign(reinterpret_cast<const char*>(bytes_.data()), size);
  bytes_ = bytes_.subspan(size);
  return true;
}

bool Decoder::count(std::size_t& value, std::size_t most) {
  std::uint32_t number = 0;
  if (!get(number) || number > most || number > bytes_.size() + 1) return false;
  value = number;
  return true;
}

// One list of members for both directions.
template <class Task, class Flag, class Number, class Text>
void members_of(Task& task, const Flag& flag, const Number& number, const Text& text) {
  auto& needs = task.needs;
  for (auto* one : {&needs.memory, &needs.power, &needs.details, &needs.tenants, &needs.all_lists, &needs.pcie,
                    &needs.once, &needs.idle_before, &task.processes, &task.openers, &task.topology, &task.looks})
    flag(*one);
  for (auto* one : {&needs.lists_every, &task.openers_budget, &task.lets_go_after}) number(*one);
  for (auto* one : {&task.root.proc, &task.root.sys, &task.root.dev, &task.root.driver, &task.library}) text(*one);
}

void encode(Encoder& out, const SensorTask& task) {
  members_of(
      task, [&](bool flag) { out.put(static_cast<std::uint8_t>(flag)); }, [&](Duration number) { out.put(number); },
      [&](const std::string& text) { out.text(text); });
  out.put(static_cast<std::uint32_t>(task.ignore_openers.size()));
  for (const std::string& name : task.ignore_openers) out.text(name);
}

bool decode(std::span<const std::byte> bytes, SensorTask& task) {
  Decoder in(bytes);
  bool good = true;
  members_of(
      task, [&](bool& flag) { good = good && in.flag(flag); }, [&](Duration& number) { good = good && in.get(number); },
      [&](std::string& text) { good = good && in.text(text, kMostText); });
  std::size_t names = 0;
  if (!good || !in.count(names, kMostText)) return false;
  task.ignore_openers.assign(names, {});
  for (std::string& name : task.ignore_openers)
    if (!in.text(name, kMostText)) return false;
  return in.at_end();
}

void encode(Encoder& out, const DriverReport& report) {
  out.put(report.state.absence);
  for (const std::string* text : {&report.state.detail, &report.version, &report.library}) out.text(*text);
}

bool decode(std::span<const std::byte> bytes, DriverReport& report) {
  Decoder in(bytes);
  return in.one_of(report.state.absence, kLastAbsence) && in.text(report.state.detail, kMostText) &&
         in.text(report.version, kMostText) && in.text(report.library, kMostText) && in.at_end();
}

void encode(Encoder& out, const Identity& identity) {
  out.put(identity.version);
  put(out, identity.device);
  out.put(static_cast<std::uint32_t>(identity.parts.size()));
  for (const Device& part : identity.parts) put(out, part);
}

bool decode(std::span<const std::byte> bytes, Identity& identity) {
  Decoder in(bytes);
  std::size_t parts = 0;
  if (!in.get(identity.version) || !get(in, identity.device) || !in.count(parts, kMostParts)) return false;
  identity.parts.assign(parts, Device{});
  for (Device& part : identity.parts)
    if (!get(in, part)) return false;
  return in.at_end();
}

void encode(Encoder& out, const Answer& answer) {
  out.put(static_cast<std::uint8_t>(answer.driver_gone));
  put(out, answer.gpu);
  out.put(static_cast<std::uint32_t>(answer.parts.size()));
  for (const Reading& part : answer.parts) put(out, part);
}

bool decode(std::span<const std::byte> bytes, Answer& answer) {
  Decoder in(bytes);
  std::size_t parts = 0;
  if (!in.flag(answer.driver_gone) || !get(in, answer.gpu) || !in.count(parts, kMostParts)) return false;
  answer.parts.resize(parts);
  for (Reading& part : answer.parts)
    if (!get(in, part)) return false;
  return in.at_end();
}

void encode(Encoder& out, const MachineReport& report) {
  out.put(static_cast<std::uint32_t>(report.processes.size()));
  for (const ProcessInfo& process : report.processes) put(out, process);
  out.put(static_cast<std::uint32_t>(report.holders.size()));
  for (const MachineReport::Holders& one : report.holders) {
    out.put(one.absence);
    out.put(one.count);
  }
  out.put(static_cast<std::uint8_t>(report.topology.has_value()));
  if (report.topology) put(out, *report.topology);
}

bool decode(std::span<const std::byte> bytes, MachineReport& report) {
  Decoder in(bytes);
  std::size_t count = 0;
  if (!in.count(count, kMostInReport)) return false;
  report.processes.assign(count, ProcessInfo{});
  for (ProcessInfo& process : report.processes)
    if (!get(in, process)) return false;
  if (!in.count(count, kMostGpus)) return false;
  report.holders.assign(count, {});
  for (MachineReport::Holders& one : report.holders)
    if (!in.one_of(one.absence, kLastAbsence) || !in.get(one.count)) return false;
  bool topology = false;
  if (!in.flag(topology)) return false;
  report.topology.reset();
  if (topology && !get(in, report.topology.emplace())) return false;
  return in.at_end();
}

std::uint64_t seal_of(std::span<const std::byte> bytes, std::uint64_t round) {
  std::uint64_t sum = 0x9E3779B97F4A7C15 ^ round ^ (bytes.size() << 32);
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, 8);
    sum = (sum ^ word) * 0x9E3779B97F4A7C15;
    sum ^= sum >> 29;
  }
  for (; i < bytes.size(); ++i) sum = (sum ^ static_cast<std::uint64_t>(bytes[i])) * 0x100000001B3;
  return sum;
}

}  // namespace lull
