#include "sense/wire.h"

#include <cmath>
#include <type_traits>

#include "sense/sampler_options.h"

namespace lull {
namespace {

constexpr std::size_t kMostText = 64 << 10;
constexpr std::size_t kMostParts = 64;
constexpr std::size_t kMostInList = 1 << 16;
constexpr std::size_t kMostWords = 1 << 14;
constexpr Absence kLastAbsence = Absence::untold;
constexpr Basis kLastBasis = Basis::moments;
constexpr std::int64_t kLongestTime = std::int64_t{1} << 62;

bool sound(Duration time) { return time.count() >= 0 && time.count() <= kLongestTime; }

// A writer and a reader have the same members, so that the members of a message are listed once for both directions
// (code()). Limits are for the reader to check.
class MessageWriter {
 public:
  template <class T>
  using Ref = const T&;
  explicit MessageWriter(Encoder& out) : out_(out) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  bool value(const T& value) {
    return out_.add(&value, sizeof value), true;
  }
  bool value(const std::string& text, std::size_t = 0) {
    value(static_cast<std::uint32_t>(text.size()));
    return out_.add(text.data(), text.size()), true;
  }
  template <class T>
  bool value(const std::optional<T>& maybe) {
    value(maybe.has_value());
    if (maybe) code(*this, *maybe);
    return true;
  }
  template <class... Flags>
  bool flags(Flags... flags) {
    unsigned bits = 0;
    unsigned place = 0;
    ((bits |= static_cast<unsigned>(flags) << place++), ...);
    return value(static_cast<std::uint8_t>(bits));
  }
  template <class Enum>
  bool one_of(Enum member, Enum) {
    return value(member);
  }
  template <class T>
  bool size_of(const std::vector<T>& items, std::size_t) {
    return value(static_cast<std::uint32_t>(items.size()));
  }
  template <class T>
  bool list(const std::vector<T>& items, std::size_t most) {
    size_of(items, most);
    for (const T& one : items) code(*this, one);
    return true;
  }
  template <class T>
  bool list(const std::optional<std::vector<T>>& items, std::size_t most) {
    return value(items.has_value()) && (!items || list(*items, most));
  }

 private:
  Encoder& out_;
};

class MessageReader {
 public:
  template <class T>
  using Ref = T&;
  explicit MessageReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <class T>
    requires std::is_trivially_copyable_v<T>
  bool value(T& value) {
    if (bytes_.size() < sizeof value) return false;
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return true;
  }
  bool value(bool& flag) {
    std::uint8_t byte = 0;
    if (!value(byte) || byte > 1) return false;
    flag = byte == 1;
    return true;
  }
  bool value(Duration& time) {
    std::int64_t count = 0;
    if (!value(count) || !sound(Duration(count))) return false;
    time = Duration(count);
    return true;
  }
  bool value(Instant& at) {
    Duration since_boot{};
    if (!value(since_boot)) return false;
    at = Instant(since_boot);
    return true;
  }
  bool value(std::string& text, std::size_t most = kMostText) {
    std::uint32_t size = 0;
    if (!value(size) || size > most || size > bytes_.size()) return false;
    text.assign(reinterpret_cast<const char*>(bytes_.data()), size);
    bytes_ = bytes_.subspan(size);
    return true;
  }
  template <class T>
  bool value(std::optional<T>& maybe) {
    bool there = false;
    if (!value(there)) return false;
    if (!there) return maybe.reset(), true;
    return code(*this, maybe.emplace());
  }
  template <class... Flags>
  bool flags(Flags&... flags) {
    std::uint8_t bits = 0;
    if (!value(bits) || bits >> sizeof...(flags) != 0) return false;
    unsigned place = 0;
    ((flags = (bits >> place++ & 1) != 0), ...);
    return true;
  }
  template <class Enum>
  bool one_of(Enum& member, Enum last) {
    std::underlying_type_t<Enum> number = 0;
    if (!value(number) || number > static_cast<std::underlying_type_t<Enum>>(last)) return false;
    member = static_cast<Enum>(number);
    return true;
  }
  // Each of the items takes at least one byte.
  template <class T>
  bool size_of(std::vector<T>& items, std::size_t most) {
    std::uint32_t number = 0;
    if (!value(number) || number > most || number > bytes_.size() + 1) return false;
    items.resize(number);
    return true;
  }
  template <class T>
  bool list(std::vector<T>& items, std::size_t most) {
    items.clear();  // its memory is used again
    if (!size_of(items, most)) return false;
    for (T& one : items)
      if (!code(*this, one)) return false;
    return true;
  }
  template <class T>
  bool list(std::optional<std::vector<T>>& items, std::size_t most) {
    bool there = false;
    if (!value(there)) return false;
    if (!there) return items.reset(), true;
    return list(items ? *items : items.emplace(), most);
  }
  bool at_end() const { return bytes_.empty(); }

 private:
  std::span<const std::byte> bytes_;
};

template <class Codec, class T>
  requires(std::is_trivially_copyable_v<T> && !std::is_aggregate_v<T>)
bool code(Codec& codec, T& value) {
  return codec.value(value);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<std::string> word) {
  return codec.value(word, kMostText * 4);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<Device> device) {
  return codec.one_of(device.kind, DeviceKind::mig) && codec.one_of(device.vendor, Vendor::tegra) &&
         codec.value(device.vendor_index) && codec.value(device.index) && codec.value(device.mig_index) &&
         codec.value(device.uuid) && codec.value(device.name) && codec.value(device.pci) && codec.value(device.minor) &&
         codec.value(device.gpu_instance) && codec.value(device.compute_instance) && codec.value(device.speed) &&
         codec.value(device.render_minor) && codec.value(device.kfd_rank) &&
         codec.flags(device.partition, device.integrated, device.idle_looks_hung, device.without_uuid) &&
         codec.one_of(device.absence, kLastAbsence);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<GpuProcess> process) {
  return codec.value(process.pid) && codec.flags(process.compute, process.graphics, process.mps_server, process.here) &&
         codec.one_of(process.proof, Proof::stale) &&
         // A process that is not seen is not proven, and a stale pid has no process.
         process.proof != (process.here ? Proof::stale : Proof::proven) && codec.value(process.start_ticks) &&
         codec.value(process.memory_bytes) && codec.value(process.gpu_instance);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<ProcessShare> share) {
  const auto sound = [](double percent) { return std::isnan(percent) || plausible(Metric::job_util, percent); };
  return codec.value(share.pid) && codec.value(share.percent) && codec.value(share.kernels) && sound(share.percent) &&
         sound(share.kernels);
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
  Band util_newest;
  Band power_newest;
  Duration newest_span;
  Duration newest_period;
  Duration counters_span;
  std::int64_t awake_ms;
};

// From a Reading to a Fixed, or back.
template <class From, class To>
void copy_fixed(const From& from, To& to) {
  to.value = from.value;
  to.absence = from.absence;
  to.util_basis = from.util_basis;
  to.power_basis = from.power_basis;
  to.device_absence = from.device_absence;
  to.asleep = from.asleep;
  to.memory_estimated = from.memory_estimated;
  to.processes_hidden = from.processes_hidden;
  to.util_coverage = from.util_coverage;
  to.power_coverage = from.power_coverage;
  to.util_newest = from.util_newest;
  to.power_newest = from.power_newest;
  to.newest_span = from.newest_span;
  to.newest_period = from.newest_period;
  to.counters_span = from.counters_span;
  to.awake_ms = from.awake_ms;
}

bool sound(Metric metric, const Band& band) {
  if (std::isnan(band.low) && std::isnan(band.high)) return true;
  return plausible(metric, band.low) && plausible(metric, band.high) && band.low <= band.high;
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
         fixed.util_coverage <= 1 && fixed.power_coverage >= 0 && fixed.power_coverage <= 1 &&
         sound(Metric::util, fixed.util_newest) && sound(Metric::power, fixed.power_newest) &&
         sound(fixed.newest_span) && sound(fixed.newest_period) && sound(fixed.counters_span);
}

bool code_fixed(MessageWriter& out, const Reading& reading) {
  Fixed fixed;
  std::memset(static_cast<void*>(&fixed), 0, sizeof fixed);
  copy_fixed(reading, fixed);
  return out.value(fixed);
}

bool code_fixed(MessageReader& in, Reading& reading) {
  Fixed fixed;
  if (!in.value(fixed) || !sound(fixed)) return false;
  reading.unanswered = {};
  copy_fixed(fixed, reading);
  return true;
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<Reading> reading) {
  return code_fixed(codec, reading) && codec.value(reading.idle_before) && codec.value(reading.attached_for) &&
         codec.value(reading.energy_joules) && codec.value(reading.mem_clock_mhz) &&
         codec.value(reading.throttle_reasons) && codec.value(reading.mig_mode) && codec.value(reading.persistence) &&
         codec.value(reading.display_active) && codec.list(reading.processes, kMostInList) &&
         codec.one_of(reading.shares_absence, kLastAbsence) && codec.list(reading.shares, kMostInList) &&
         codec.value(reading.shares_span) && codec.value(reading.unlisted_util);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<ProcessInfo> process) {
  return codec.value(process.pid) && codec.value(process.parent) && codec.value(process.start_ticks) &&
         codec.value(process.started) && codec.value(process.uid) && codec.value(process.user) &&
         codec.value(process.name) && codec.value(process.cgroup) && codec.value(process.container) &&
         codec.list(process.arguments, kMostWords) && codec.value(process.state);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<MachineReport::Holders> holders) {
  return codec.one_of(holders.absence, kLastAbsence) && codec.value(holders.count);
}

bool code(MessageWriter& out, const Topology& topology) {
  out.value(static_cast<std::uint32_t>(topology.devices()));
  for (std::size_t a = 0; a < topology.devices(); ++a)
    for (std::size_t b = a + 1; b < topology.devices(); ++b) {
      const Join join = topology.between(a, b);
      out.value(join.nvlinks);
      out.value(join.nearness);
    }
  return true;
}

bool code(MessageReader& in, Topology& topology) {
  std::uint32_t devices = 0;
  if (!in.value(devices) || devices > kMostGpus) return false;
  topology = Topology(devices);
  for (std::size_t a = 0; a < devices; ++a)
    for (std::size_t b = a + 1; b < devices; ++b) {
      Join join;
      if (!in.value(join.nvlinks) || !in.one_of(join.nearness, Nearness::shared)) return false;
      topology.set(a, b, join);
    }
  return true;
}

// ---- messages

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<SamplerOptions> options) {
  for (auto* flag :
       {&options.memory, &options.power, &options.details, &options.processes, &options.all_lists, &options.pcie,
        &options.counters, &options.shares, &options.once, &options.idle_before, &options.process_info,
        &options.openers, &options.topology, &options.nvidia_only, &options.if_unexplained, &options.all_clients})
    if (!codec.value(*flag)) return false;
  for (auto* time : {&options.lists_every, &options.deadline, &options.release_after})
    if (!codec.value(*time)) return false;
  for (auto* text : {&options.root.proc, &options.root.sys, &options.root.dev, &options.root.driver, &options.library,
                     &options.dump})
    if (!codec.value(*text)) return false;
  return codec.list(options.ignore_openers, kMostInList);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<DriverReport> report) {
  return codec.one_of(report.state.absence, kLastAbsence) && codec.value(report.state.detail) &&
         codec.value(report.version) && codec.value(report.library);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<Identity> identity) {
  return codec.value(identity.version) && code(codec, identity.device) && codec.list(identity.parts, kMostParts);
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<Answer> answer) {
  if (!codec.value(answer.driver_gone) || !code(codec, answer.gpu) || !codec.size_of(answer.parts, kMostParts))
    return false;
  for (auto& part : answer.parts)  // not as a list: the memory in each is used again
    if (!code(codec, part)) return false;
  return true;
}

template <class Codec>
bool code(Codec& codec, typename Codec::template Ref<MachineReport> report) {
  return codec.list(report.process_info, kMostInList) && codec.list(report.holders, kMostGpus) &&
         codec.value(report.holders_began) && codec.value(report.topology);
}

template <class Message>
void write_to(Encoder& out, const Message& message) {
  MessageWriter writer(out);
  code(writer, message);
}

template <class Message>
bool read_from(std::span<const std::byte> bytes, Message& message) {
  MessageReader reader(bytes);
  return code(reader, message) && reader.at_end();
}

}  // namespace

void encode(Encoder& out, const SamplerOptions& options) { write_to(out, options); }
void encode(Encoder& out, const DriverReport& report) { write_to(out, report); }
void encode(Encoder& out, const Identity& identity) { write_to(out, identity); }
void encode(Encoder& out, const Answer& answer) { write_to(out, answer); }
void encode(Encoder& out, const MachineReport& report) { write_to(out, report); }

bool decode(std::span<const std::byte> bytes, SamplerOptions& options) { return read_from(bytes, options); }
bool decode(std::span<const std::byte> bytes, DriverReport& report) { return read_from(bytes, report); }
bool decode(std::span<const std::byte> bytes, Identity& identity) { return read_from(bytes, identity); }
bool decode(std::span<const std::byte> bytes, Answer& answer) { return read_from(bytes, answer); }
bool decode(std::span<const std::byte> bytes, MachineReport& report) { return read_from(bytes, report); }

std::uint64_t checksum_of(std::span<const std::byte> bytes, std::uint64_t round) {
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
