// Intel's GPUs, from the files of i915 and xe in /sys. Neither tells how busy a card is: that is what is left of the
// time that its engines were idle, which errs towards work (an engine that waits for memory is not idle).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "base/process.h"
#include "sense/drm_clients.h"
#include "sense/file_source.h"
#include "sense/file_users.h"
#include "sense/files.h"
#include "sense/intel/counters.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr Duration kFindAgain = 10s;    // files that may have come since
constexpr Duration kFirstLook = 150ms;  // between the two readings of a program that looks only once

// perfmon_capable() of the kernel. Without it i915 says that all memory is free.
bool may_see_memory(const Root& root) {
  constexpr unsigned kSysAdmin = 21;
  constexpr unsigned kPerfmon = 38;
  const auto status = read_file(AT_FDCWD, root.proc + "/self/status", 65536);
  if (!status) return false;
  const std::uint64_t mask = status_mask(*status, "CapEff").value_or(0);
  return (mask >> kSysAdmin & 1) != 0 || (mask >> kPerfmon & 1) != 0;
}

class IntelGpu final : public FileGpu {
 public:
  IntelGpu(DrmCard card, const Root& root, const Clock& clock, const std::shared_ptr<DrmClients>& clients)
      : card_(std::move(card)), root_(root), clock_(clock), users_(root, clients, card_.driver) {}

  const std::string& folder() const override { return card_.device; }

  void identify(Identity& identity) override {
    Device& device = identity.device;
    device.pci = card_.pci();
    device.without_uuid = true;
    device.integrated = is_integrated() && !file_exists(card_.card + "/lmem_total_bytes");
    device.idle_looks_hung = true;  // a GT that something keeps awake reads as busy, at the power of rest
    device.render_minor = card_.render_minor;
    device.name = name_of(card_, root_, "Intel");
    device_ = device;
    find_files();
  }

  void read(const Needs& needs, Instant now, Answer& answer) override {
    Reading& reading = answer.gpu;
    if (!found_) found_ = now;
    if (idle_files_.empty() || hwmon_.empty() || now < *found_ || now - *found_ >= kFindAgain) {
      found_ = now;
      find_files();
    }
    const bool first = !util_.has_baseline();
    look_at_counters(needs.power);
    if (first && (needs.once || needs.idle_before)) {
      std::this_thread::sleep_for(kFirstLook);
      look_at_counters(needs.power);
    }
    publish_util(reading, util_.take(), {.value = {}, .why = Absence::none, .other = true});
    reading.miss(Metric::mem_util, Absence::not_supported);
    if (needs.memory) read_memory(reading);
    if (needs.power) read_power(reading);
    if (needs.details) read_details(reading);
    say_unsupported(needs, reading);
    if (needs.processes) users_.sample(device_, std::nullopt, needs, now, reading);
    reading.display_active = card_.display_active();
  }

  // Each look wakes the card, or keeps it awake; the counters lose nothing.
  void look(Instant) override {}
  Duration look_within() const override { return Duration::zero(); }

  void restart() override {
    util_.restart();
    power_.restart();
  }

 private:
  // A GT that was seen stays: if its folder is not listed any more, it is unknown.
  void find_files() {
    const auto add = [this](std::string file) {
      if (std::ranges::find(idle_files_, file) == idle_files_.end()) idle_files_.push_back(std::move(file));
    };
    clock_file_.clear();
    for (const std::string& gt : numbered(card_.card + "/gt", "gt")) {
      add(card_.card + "/gt/" + gt + "/rc6_residency_ms");
      if (clock_file_.empty()) clock_file_ = card_.card + "/gt/" + gt + "/rps_act_freq_mhz";
    }
    for (const std::string& tile : numbered(card_.device, "tile"))
      for (const std::string& gt : numbered(card_.device + "/" + tile, "gt")) {
        const std::string folder = card_.device + "/" + tile + "/" + gt;
        add(folder + "/gtidle/idle_residency_ms");
        if (clock_file_.empty()) clock_file_ = folder + "/freq0/act_freq";
      }
    if (const std::string old = card_.card + "/power/rc6_residency_ms"; idle_files_.empty() && file_exists(old))
      add(old);
    if (clock_file_.empty()) clock_file_ = card_.card + "/gt_act_freq_mhz";
    hwmon_.clear();
    for (const char* name : {"i915", "xe"})
      if (hwmon_.empty()) hwmon_ = card_.hwmon(name);
    energy_ = file_exists(hwmon_ + "/energy1_input") || !file_exists(hwmon_ + "/energy2_input") ? "1" : "2";
  }

  void look_at_counters(bool power) {
    const auto point = [&](const std::vector<std::string>& files) {
      CounterPoint seen;
      seen.before = clock_.now();
      for (const std::string& file : files) seen.values.push_back(read_unsigned(file));
      seen.after = clock_.now();
      return seen;
    };
    util_.add(point(idle_files_));
    if (power) power_.add(point({hwmon_ + "/energy" + energy_ + "_input"}));
  }

  void read_power(Reading& reading) {
    const FileValue<double> limit = power_limit();
    if (limit) most_watts_ = std::max(most_watts_, 2 * *limit);  // what it may draw for a moment
    const MeterTake take = power_.take();
    publish(reading, Metric::power, take, {.value = {}, .why = Absence::none, .other = true});
    if (!std::isnan(take.newest.high)) reading.newest_span = std::max(reading.newest_span, take.span);
    if (const auto joules = read_number(hwmon_ + "/energy" + energy_ + "_input", 1e-6); joules && *joules > 0)
      reading.energy_joules = *joules;
    put(reading, Metric::power_limit, limit);
  }

  // 0 means no limit.
  FileValue<double> power_limit() const {
    FileValue<double> why = std::unexpected(Absence::not_supported);
    for (const std::string& number : {energy_, std::string(energy_ == "1" ? "2" : "1")})
      for (const char* kind : {"max", "crit", "cap"}) {
        const auto watts = read_number(fmt::format("{}/power{}_{}", hwmon_, number, kind), 1e-6);
        if (watts && *watts > 0) return watts;
        if (!watts && watts.error() != Absence::not_supported) why = watts;
      }
    return why;
  }

  // Only with its capability is what the driver says the truth.
  void read_memory(Reading& reading) const {
    auto total = read_number(card_.card + "/lmem_total_bytes");
    if (!total) total = vram_of_tiles();
    if (!total && total.error() == Absence::not_supported && is_integrated())
      return estimate_shared_memory(root_, reading);
    put(reading, Metric::mem_total, total);
    FileValue<double> left = std::unexpected(Absence::no_permission);
    if (may_see_memory(root_)) left = read_number(card_.card + "/lmem_avail_bytes");
    if (left && total && *left > *total) left = std::unexpected(Absence::implausible);
    put(reading, Metric::mem_free, left);
    put(reading, Metric::mem_used, !total ? total : left ? FileValue<double>(*total - *left) : left);
  }

  FileValue<double> vram_of_tiles() const {
    FileValue<double> sum = std::unexpected(Absence::not_supported);
    for (const std::string& tile : numbered(card_.device, "tile")) {
      const auto one = read_number(card_.device + "/" + tile + "/physical_vram_size_bytes");
      if (!one) return one;
      sum = sum.value_or(0) + *one;
    }
    return sum;
  }

  bool is_integrated() const { return card_.address.ends_with(":00:02.0"); }

  void read_details(Reading& reading) const {
    auto temp = read_number(hwmon_ + "/temp2_input", 1e-3);  // xe: the package
    if (!temp && temp.error() == Absence::not_supported) temp = read_number(hwmon_ + "/temp1_input", 1e-3);
    put(reading, Metric::temp, temp);
    put(reading, Metric::clock, read_number(clock_file_));
    reading.miss(Metric::fan, Absence::not_supported);  // turns a minute, and of how many is not told
    reading.miss(Metric::pstate, Absence::not_supported);
  }

  DrmCard card_;
  Root root_;
  const Clock& clock_;
  FileUsers users_;
  Device device_;
  std::optional<Instant> found_;         // when its files were looked for
  std::vector<std::string> idle_files_;  // of each GT
  std::string clock_file_;
  std::string hwmon_;
  std::string energy_ = "1";  // 1 is the card, 2 the package
  CounterMeter util_{BusyByIdle()};
  double most_watts_ = 600;
  CounterMeter power_{
      [this](const CounterPoint& from, const CounterPoint& to) { return watts_between(from, to, most_watts_); }};
};

}  // namespace

std::unique_ptr<Source> make_intel_source(const Root& root, const Clock& clock) {
  return make_intel_source(root, clock, look_at_drm(root, clock));
}

std::unique_ptr<Source> make_intel_source(const Root& root, const Clock& clock, const DrmMachine& machine) {
  auto find = [root, &clock, machine] {
    FileGpus gpus;
    for (const DrmCard& card : machine.cards)
      if (card.vendor == kIntelVendor) gpus.push_back(std::make_unique<IntelGpu>(card, root, clock, machine.clients));
    return gpus;
  };
  return std::make_unique<FileSource>(Vendor::intel, std::move(find), "");
}

}  // namespace lull
