// AMD's GPUs, from amdgpu's files in /sys.
//
// On RDNA an idle compute context can read 99 to 100 % busy, or 3 to 4 % with a model loaded: what gpu_busy_percent
// says is taken as it is, since it errs towards work (Device::idle_looks_hung is for rules that would take that for a
// hang).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "sense/amd/gpu_metrics.h"
#include "sense/drm_clients.h"
#include "sense/file_source.h"
#include "sense/file_users.h"
#include "sense/files.h"
#include "sense/kfd.h"
#include "sense/nvml/meters.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr double kNearWattsOfAmd = 5;
constexpr std::uint64_t kFirstCdna = 90'008;  // of KFD's numbers: MI100 and later, which have no graphics at all
constexpr std::uint64_t kRenoir = 90'012;     // but for this one: the graphics of a processor
constexpr std::uint64_t kFirstGfx10 = 100'000;
constexpr Duration kSeldomRead = 10s;  // whether a screen is drawn on, and what KFD knows

// A counter that did not move, or ran backwards: what it counted in that time is unknown.
class SoundEnergy {
 public:
  std::optional<std::uint64_t> millijoules(std::optional<std::uint64_t> energy, Instant now) {
    const auto last = std::exchange(last_, energy);
    const Instant at = std::exchange(at_, now);
    if (!energy || *energy == 0) return std::nullopt;
    if (last && (*energy < *last || (*energy == *last && now - at >= kMovesWithin))) return std::nullopt;
    return static_cast<std::uint64_t>(static_cast<double>(*energy) * kMillijoulesPerEnergy);
  }
  void forget() { last_.reset(); }

 private:
  static constexpr Duration kMovesWithin = 100ms;
  std::optional<std::uint64_t> last_;
  Instant at_{};
};

// The card's own sum of its activity, in % x ms where firmware keeps to that: at most what it says was missed between
// our looks. It only ever adds to what they saw, so that another unit cannot hide work. Cards without one say 0.
class ActivityCounter {
 public:
  // % since the last call; nothing: it does not tell.
  std::optional<double> percent(const GpuMetrics& metrics) {
    const auto before = std::exchange(last_, metrics);
    if (!before || !before->activity || !before->firmware_time || !metrics.activity || !metrics.firmware_time ||
        *metrics.firmware_time <= *before->firmware_time)
      return std::nullopt;
    const std::uint32_t more = *metrics.activity - *before->activity;  // also where it wrapped
    const auto ticks = static_cast<double>(*metrics.firmware_time - *before->firmware_time);
    return std::min(100.0, more / (ticks / kFirmwareTicksPerMillisecond));
  }
  void forget() { last_.reset(); }

 private:
  std::optional<GpuMetrics> last_;
};

class AmdGpu final : public FileGpu {
 public:
  AmdGpu(DrmCard card, const Root& root, const std::shared_ptr<DrmClients>& clients,
         std::shared_ptr<SharedKfdTopology> kfd)
      : card_(std::move(card)),
        root_(root),
        clients_(clients),
        kfd_(std::move(kfd)),
        users_(root, clients, card_.driver) {}

  const std::string& folder() const override { return card_.device; }

  void identify(Identity& identity) override {
    Device& device = identity.device;
    device.pci = card_.pci();
    device.render_minor = card_.render_minor;
    if (const auto name = read_text(card_.device + "/product_name"))
      device.name = *name;
    else
      device.name = name_of(card_, root_, "AMD");
    const auto id = read_hex(card_.device + "/unique_id");
    if (id && *id != 0) device.uuid = fmt::format("GPU-{:016x}", *id);
    // Others may have read one that we cannot read now, and hold the GPU by it.
    device.without_uuid = id ? *id == 0 : !file_exists(card_.device + "/unique_id") && file_exists(card_.device);
    hwmon_ = card_.hwmon("amdgpu");
    identify_compute(identity);
    device_ = device;
  }

  bool is_other(Instant now) override {
    if (is_integrated() != device_.integrated) return true;
    if (!compute_at_) compute_at_ = now;
    if (now >= *compute_at_ && now - *compute_at_ < kSeldomRead) return false;
    compute_at_ = now;
    return find_compute() != compute_;
  }

  void read(const Needs& needs, Instant now, Answer& answer) override {
    Reading& reading = answer.gpu;
    look_seldom(now);
    const std::optional<GpuMetrics> metrics = read_metrics();
    power_wanted_ = needs.power;
    read_util(metrics, now, reading);
    if (needs.memory) read_memory(reading);
    if (needs.power) read_power(metrics, now, reading);
    if (needs.details) read_details(reading);
    say_unsupported(needs, reading);  // the file of PCIe traffic takes a second to read
    reading.display_active = display_active_;
    if (needs.processes) {
      Needs of_users = needs;
      of_users.if_unexplained = needs.if_unexplained && only_computes_;
      users_.sample(device_, kfd_gpu_, of_users, now, reading);
      if (compute_.nodes.empty() && compute_.absence != Absence::none) {  // there may be compute processes beside
        reading.processes_hidden = true;
        reading.miss(Metric::procs, compute_.absence);
      }
    }
    for (std::size_t i = 0; i < answer.parts.size(); ++i) read_part(needs, now, i, answer.parts[i]);
  }

  void look(Instant now) override {
    look_util(busy_percent(std::nullopt), now);
    if (power_wanted_ && moments_.due(now)) (void)look_power(read_metrics(), now);
  }

  Duration look_within() const override {
    return std::min(util_.look_within(), power_wanted_ ? moments_.look_within() : kNoLook);
  }

  void restart() override {
    util_.restart();
    power_.restart();
    moments_.restart();
    energy_.forget();
    activity_.forget();
  }

 private:
  // ---- who it is

  // What KFD has of it.
  struct Compute {
    std::vector<KfdNode> nodes;       // none: KFD does not know it
    Absence absence = Absence::none;  // other than none: it may know more
    bool split = false;
    bool operator==(const Compute&) const = default;
  };
  Compute find_compute() const {
    Compute found;
    const KfdTopology kfd = kfd_->read();
    std::ranges::copy_if(kfd.gpus, std::back_inserter(found.nodes), [&](const KfdNode& node) {
      return node.pci() == card_.pci() || (card_.render_minor && node.render_minor == card_.render_minor);
    });
    found.absence = kfd.absence == Absence::no_driver ? Absence::none : kfd.absence;
    if (found.absence == Absence::none) found.absence = kfd.unseen;
    const auto mode = read_text(card_.device + "/current_compute_partition");
    found.split = mode && *mode != "SPX";
    return found;
  }

  // As KFD knows it: its place in ROCm's order, and its partitions, some of which may be closed to us.
  void identify_compute(Identity& identity) {
    Device& device = identity.device;
    identity.parts.clear();
    parts_.clear();
    kfd_gpu_.reset();
    device.kfd_rank.reset();
    compute_ = find_compute();
    const std::vector<KfdNode>& mine = compute_.nodes;
    if (keeps_files()) keep_topology();
    if (!mine.empty() && mine[0].has_cpu) shares_memory_ = true;
    const std::uint64_t gfx = !mine.empty() ? mine[0].gfx_target_version : 0;
    device.integrated = is_integrated();
    device.idle_looks_hung = is_rdna(gfx);
    only_computes_ = gfx >= kFirstCdna && gfx < kFirstGfx10 && gfx != kRenoir;
    device.partition = mine.size() > 1 || (!mine.empty() && (mine[0].partition || compute_.split));
    if (!device.partition && !mine.empty()) {
      kfd_gpu_ = mine[0].gpu_id;
      device.kfd_rank = mine[0].rank;
    }
    for (std::size_t i = 0; device.partition && i < mine.size(); ++i) {
      Device& part = identity.parts.emplace_back(device);
      part.kind = DeviceKind::mig;
      part.mig_index = static_cast<unsigned>(i);
      part.uuid.clear();  // all have that of the card
      part.without_uuid = true;
      part.name = fmt::format("{} partition {}", device.name, i);
      part.render_minor = mine[i].render_minor;
      part.kfd_rank = mine[i].rank;
      parts_.push_back({part, mine[i].gpu_id, std::make_unique<FileUsers>(root_, clients_, card_.driver)});
    }
  }

  void keep_topology() const {
    const std::string nodes = root_.sys + "/class/kfd/kfd/topology/nodes";
    Directory names(nodes);
    while (const char* name = names.next())
      for (const char* file : {"gpu_id", "properties"}) (void)read_bytes(nodes + "/" + name + "/" + file);
  }

  // By the compute driver's number of the architecture (9.x is GCN and CDNA), else by the card's own list of its
  // blocks. A card that tells neither counts as RDNA unless it is made for computing alone.
  bool is_rdna(std::uint64_t gfx) const {
    constexpr std::uint64_t kFirstRdna = kFirstGfx10 / 10'000;
    constexpr std::uint64_t kDisplay = 0x0300;  // class of PCI: a graphics card
    if (gfx > 0) return gfx / 10'000 >= kFirstRdna;
    if (const auto major = read_count(card_.device + "/ip_discovery/die/0/GC/0/major")) return *major >= kFirstRdna;
    const auto kind = read_hex(card_.device + "/class");
    return !kind || *kind >> 8U == kDisplay;
  }

  // An MI300A shares its memory too, and has no outputs.
  bool is_integrated() const { return shares_memory_ && card_.has_outputs; }

  // ---- values

  void look_seldom(Instant now) {
    if (seldom_at_ && now >= *seldom_at_ && now - *seldom_at_ < kSeldomRead) return;
    seldom_at_ = now;
    display_active_ = card_.display_active();
    if (hwmon_.empty()) hwmon_ = card_.hwmon("amdgpu");
  }

  std::optional<GpuMetrics> read_metrics() {
    if (metrics_ == MetricsFile::unknown_version) return std::nullopt;
    const auto bytes = read_bytes(card_.device + "/gpu_metrics");
    if (!bytes) return std::nullopt;  // this time
    auto metrics = parse_gpu_metrics(*bytes);
    if (metrics) {
      metrics_ = MetricsFile::usable;
    } else if (metrics_ == MetricsFile::untried && gpu_metrics_format(*bytes)) {
      metrics_ = MetricsFile::unknown_version;
      if (const unsigned format = *gpu_metrics_format(*bytes); format == 2 || format == 3) shares_memory_ = true;
    }
    return metrics;
  }

  Moment busy_percent(const std::optional<GpuMetrics>& metrics) const {
    const auto busy = read_number(card_.device + "/gpu_busy_percent");
    Moment moment{.value = {}, .why = busy ? Absence::none : busy.error()};
    if (busy && plausible(Metric::util, *busy))
      moment.value = *busy;
    else if (busy)
      moment.why = Absence::implausible;
    else if (moment.why == Absence::not_supported && metrics && metrics->gfx_percent &&
             plausible(Metric::util, *metrics->gfx_percent))
      moment = {.value = metrics->gfx_percent};
    return moment;
  }

  void look_util(const Moment& moment, Instant now) {
    util_.look(now, moment.value, {.state = RingLook::State::none});
    if (!moment.value) util_.missed(now);
  }

  void read_util(const std::optional<GpuMetrics>& metrics, Instant now, Reading& reading) {
    FileValue<double> memory = read_number(card_.device + "/mem_busy_percent");
    if (!memory && memory.error() == Absence::not_supported && metrics && metrics->umc_percent)
      memory = *metrics->umc_percent;
    put(reading, Metric::mem_util, memory);
    const Moment moment = busy_percent(metrics);
    look_util(moment, now);
    MeterTake take = util_.take(now);
    if (!metrics) activity_.forget();
    if (const auto counted = metrics ? activity_.percent(*metrics) : std::nullopt) {
      take.mean = std::max(take.mean, *counted);
      if (!std::isnan(take.newest.high)) take.newest.high = std::max(take.newest.high, *counted);
    }
    publish_util(reading, take, moment);
  }

  // An APU has some memory set aside, and takes from the machine's.
  void read_memory(Reading& reading) const {
    auto used = read_number(card_.device + "/mem_info_vram_used");
    auto total = read_number(card_.device + "/mem_info_vram_total");
    if (shares_memory_) {
      const auto more_used = read_number(card_.device + "/mem_info_gtt_used");
      const auto more_total = read_number(card_.device + "/mem_info_gtt_total");
      used = !used ? used : more_used ? FileValue<double>(*used + *more_used) : more_used;
      total = !total ? total : more_total ? FileValue<double>(*total + *more_total) : more_total;
    }
    FileValue<double> left = !total ? total : !used ? used : FileValue<double>(*total - *used);
    if (used && total && (*total < 1 || *used < 0 || *used > *total))
      used = total = left = std::unexpected(Absence::implausible);
    put(reading, Metric::mem_used, used);
    put(reading, Metric::mem_total, total);
    put(reading, Metric::mem_free, left);
  }

  // No card that is awake draws nothing: the second die of an MI250X says 0 for both.
  Moment watts(const std::optional<GpuMetrics>& metrics) const {
    auto microwatts = read_number(hwmon_ + "/power1_average", 1e-6);
    if (!microwatts && microwatts.error() == Absence::not_supported)
      microwatts = read_number(hwmon_ + "/power1_input", 1e-6);
    if (!microwatts && microwatts.error() == Absence::not_supported && metrics && metrics->watts)
      microwatts = *metrics->watts;
    if (!microwatts) return {.value = {}, .why = microwatts.error()};
    if (*microwatts == 0) return {.value = {}, .why = Absence::not_supported};
    if (!plausible(Metric::power, *microwatts)) return {.value = {}, .why = Absence::implausible};
    return {.value = *microwatts};
  }

  Moment look_power(const std::optional<GpuMetrics>& metrics, Instant now) {
    Moment moment = watts(metrics);
    const auto millijoules = energy_.millijoules(metrics ? metrics->energy : std::nullopt, now);
    power_.look(now, millijoules, now, moment.value);
    moments_.look(now, std::nullopt, now, moment.value);
    if (!moment.value) moments_.missed(now);
    moment.other = millijoules.has_value();
    return moment;
  }

  void read_power(const std::optional<GpuMetrics>& metrics, Instant now, Reading& reading) {
    const Moment moment = look_power(metrics, now);
    MeterTake take = power_.take(now);
    // A counter that stood still for a while in between, unseen, says less than the moments do.
    const MeterTake seen = moments_.take(now);
    const bool counter_alone = moment.why == Absence::not_supported;
    if (!counter_alone && !(seen.mean <= take.mean * 1.1 + kNearWattsOfAmd)) take = seen;
    publish(reading, Metric::power, take, moment);
    if (!std::isnan(reading.power_newest.high))
      reading.newest_span = std::max(reading.newest_span, PowerMeter::kMomentIsOf);
    if (moment.other) reading.energy_joules = static_cast<double>(*metrics->energy) * kMillijoulesPerEnergy / 1000;
    auto cap = read_number(hwmon_ + "/power1_cap", 1e-6);
    if (cap && *cap == 0) cap = std::unexpected(Absence::not_supported);
    put(reading, Metric::power_limit, cap);
  }

  void read_details(Reading& reading) const {
    auto temp = read_number(hwmon_ + "/temp1_input", 1e-3);
    // Hidden on MI300: the junction's then.
    if (!temp && temp.error() == Absence::not_supported) temp = read_number(hwmon_ + "/temp2_input", 1e-3);
    put(reading, Metric::temp, temp);
    put(reading, Metric::clock, read_number(hwmon_ + "/freq1_input", 1e-6));
    put(reading, Metric::fan, read_number(hwmon_ + "/pwm1", 100.0 / 255));
    reading.miss(Metric::pstate, Absence::not_supported);
    if (const auto mhz = read_number(hwmon_ + "/freq2_input", 1e-6); mhz && plausible(Metric::clock, *mhz))
      reading.mem_clock_mhz = *mhz;
  }

  void read_part(const Needs& needs, Instant now, std::size_t i, Reading& reading) {
    if (i >= parts_.size()) return reading.miss_all(Absence::lost);
    for (const MetricInfo& row : kMetricTable)
      if (row.of == Of::gpu && !is_learned(row.metric)) reading.miss(row.metric, Absence::partition);
    if (needs.processes) parts_[i].users->sample(parts_[i].device, parts_[i].kfd_gpu, needs, now, reading);
  }

  enum class MetricsFile : std::uint8_t { untried, usable, unknown_version };
  struct Part {
    Device device;
    std::uint32_t kfd_gpu = 0;
    std::unique_ptr<FileUsers> users;
  };

  DrmCard card_;
  Root root_;
  std::shared_ptr<DrmClients> clients_;
  std::shared_ptr<SharedKfdTopology> kfd_;
  FileUsers users_;
  Device device_;
  std::string hwmon_;  // empty: none, and nothing is found in it
  Compute compute_;
  std::optional<Instant> compute_at_;
  std::optional<std::uint32_t> kfd_gpu_;
  std::vector<Part> parts_;
  bool only_computes_ = false;  // CDNA
  bool shares_memory_ = false;  // an APU
  MetricsFile metrics_ = MetricsFile::untried;
  UtilMeter util_;
  PowerMeter power_;
  PowerMeter moments_;  // the same without the counter
  SoundEnergy energy_;
  ActivityCounter activity_;
  bool power_wanted_ = false;
  std::optional<Instant> seldom_at_;
  std::optional<bool> display_active_;
};

}  // namespace

std::unique_ptr<Source> make_amd_source(const Root& root, const Clock& clock) {
  return make_amd_source(root, clock, look_at_drm(root, clock));
}

std::unique_ptr<Source> make_amd_source(const Root& root, const Clock& clock, const DrmMachine& machine) {
  auto find = [root, machine, kfd = std::make_shared<SharedKfdTopology>(root, clock)] {
    FileGpus gpus;
    for (const DrmCard& card : machine.cards)
      if (card.vendor == kAmdVendor) gpus.push_back(std::make_unique<AmdGpu>(card, root, machine.clients, kfd));
    return gpus;
  };
  return std::make_unique<FileSource>(Vendor::amd, std::move(find), root.sys + "/module/amdgpu");
}

}  // namespace lull
