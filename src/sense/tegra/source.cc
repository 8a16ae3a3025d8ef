// The GPU of a Jetson up to Orin, from devfreq's files. NVML on such a machine says that nothing is supported, or
// answers zeros that mean nothing, so it is never asked there (sense/all_sources.cc). Thor has no `load`: it is NVML's.
#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "sense/file_source.h"
#include "sense/files.h"
#include "sense/nvml/meters.h"

namespace lull {
namespace {

constexpr std::array<std::string_view, 4> kTegraGpus = {"gm20b", "gp10b", "gv11b", "ga10b"};
constexpr std::array<std::string_view, 4> kTegraChips = {"nvidia,tegra210", "nvidia,tegra186", "nvidia,tegra194",
                                                         "nvidia,tegra234"};

template <class Words>
bool has_any(std::string_view text, const Words& words) {
  return std::ranges::any_of(words, [&](std::string_view word) { return text.contains(word); });
}

// The folder of its GPU; empty: it has none, or none yet.
std::string find_tegra_gpu(const Root& root) {
  const std::string folder = root.sys + "/class/devfreq";
  Directory names(folder);
  while (const char* name = names.next()) {
    std::string device = real_path(folder + "/" + name + "/device");
    if (device.empty()) continue;
    const std::string kind = read_bytes(device + "/of_node/compatible").value_or("");
    const bool known = has_any(name, kTegraGpus) || has_any(kind, kTegraGpus);
    const bool is_gpu = known || (read_text(device + "/of_node/name").value_or("").contains("gpu") &&
                                  kind.contains("nvidia,"));  // others have a GPU of that name, too
    if (!is_gpu || (!known && !file_exists(device + "/load"))) continue;
    keep_link(folder + "/" + name);
    keep_link(real_path(folder + "/" + name) + "/device");
    return device;
  }
  return {};
}

// Where the power of a rail is measured: millivolts and milliamperes.
struct Rail {
  std::string millivolts;
  std::string milliamperes;
};

std::optional<Rail> find_gpu_rail(const Root& root) {
  const auto of_gpu = [](const std::string& label) { return read_text(label).value_or("").contains("GPU"); };
  for (const std::string& name : numbered(root.sys + "/class/hwmon", "hwmon")) {
    const std::string folder = root.sys + "/class/hwmon/" + name;
    if (read_text(folder + "/name") != "ina3221") continue;
    for (const char* rail : {"1", "2", "3"})
      if (of_gpu(folder + "/in" + rail + "_label"))
        return Rail{folder + "/in" + rail + "_input", folder + "/curr" + rail + "_input"};
  }
  const std::string old = root.sys + "/bus/i2c/drivers/ina3221x";
  Directory chips(old);
  while (const char* chip = chips.next())
    for (const std::string& device : numbered(old + "/" + chip, "iio:device")) {
      const std::string folder = old + "/" + chip + "/" + device;
      for (const char* rail : {"0", "1", "2"})
        if (of_gpu(folder + "/rail_name_" + rail))
          return Rail{folder + "/in_voltage" + rail + "_input", folder + "/in_current" + rail + "_input"};
    }
  return std::nullopt;
}

std::string find_gpu_heat(const Root& root) {
  for (const std::string& zone : numbered(root.sys + "/class/thermal", "thermal_zone")) {
    const std::string folder = root.sys + "/class/thermal/" + zone;
    if (lowered(read_text(folder + "/type").value_or("")).starts_with("gpu")) return folder + "/temp";
  }
  return {};
}

class TegraGpu final : public FileGpu {
 public:
  explicit TegraGpu(const Root& root) : root_(root), folder_(find_tegra_gpu(root)) {}

  const std::string& folder() const override { return folder_; }

  void identify(Identity& identity) override {
    if (folder_.empty()) folder_ = find_tegra_gpu(root_);  // it may appear late at boot
    Device& device = identity.device;
    device.name = read_text(root_.sys + "/firmware/devicetree/base/model").value_or("NVIDIA Jetson");
    device.pci = last_part(folder_);  // its place on the machine's bus
    device.without_uuid = true;
    if (folder_.empty()) device.absence = Absence::no_driver;
    rail_ = find_gpu_rail(root_);
    heat_ = find_gpu_heat(root_);
  }

  void read(const Needs& needs, Instant now, Answer& answer) override {
    Reading& reading = answer.gpu;
    power_wanted_ = needs.power;
    reading.miss(Metric::mem_util, Absence::not_supported);
    const Moment load = look_util(now);
    publish_util(reading, util_.take(now), load);
    if (needs.memory) estimate_shared_memory(root_, reading);
    if (needs.power) {
      const Moment watts = look_power(now);
      publish(reading, Metric::power, power_.take(now), watts);
      if (!std::isnan(reading.power_newest.high))
        reading.newest_span = std::max(reading.newest_span, PowerMeter::kMomentIsOf);
      reading.miss(Metric::power_limit, Absence::not_supported);
    }
    if (needs.details) {
      put(reading, Metric::temp, read_number(heat_, 1e-3));
      put(reading, Metric::clock,
          read_number(folder_ + "/devfreq/" + std::string(last_part(folder_)) + "/cur_freq", 1e-6));
      reading.miss(Metric::fan, Absence::not_supported);
      reading.miss(Metric::pstate, Absence::not_supported);
    }
    say_unsupported(needs, reading);
    if (needs.processes) reading.miss(Metric::procs, Absence::not_supported);
  }

  void look(Instant now) override {
    (void)look_util(now);
    if (power_wanted_ && power_.due(now)) (void)look_power(now);
  }

  Duration look_within() const override {
    return std::min(util_.look_within(), power_wanted_ ? power_.look_within() : kNoLook);
  }

  void restart() override {
    util_.restart();
    power_.restart();
  }

 private:
  Moment look_util(Instant now) {
    const auto load = read_number(folder_ + "/load", 0.1);  // per mille
    Moment moment{.value = {}, .why = load ? Absence::none : load.error()};
    if (load && plausible(Metric::util, *load))
      moment.value = *load;
    else if (load)
      moment.why = Absence::implausible;
    util_.look(now, moment.value, {.state = RingLook::State::none});
    if (!moment.value) util_.missed(now);
    return moment;
  }

  Moment look_power(Instant now) {
    Moment moment{.value = {}, .why = Absence::not_supported};
    if (rail_) {
      const auto volts = read_unsigned(rail_->millivolts, 1e-3);
      const auto amperes = read_unsigned(rail_->milliamperes, 1e-3);
      if (!volts || !amperes)
        moment.why = !volts ? volts.error() : amperes.error();
      else if (plausible(Metric::power, *volts * *amperes))
        moment = {.value = *volts * *amperes};
      else
        moment.why = Absence::implausible;
    }
    power_.look(now, std::nullopt, now, moment.value);
    if (!moment.value) power_.missed(now);
    return moment;
  }

  Root root_;
  std::string folder_;
  std::optional<Rail> rail_;
  std::string heat_;
  UtilMeter util_;
  PowerMeter power_;
  bool power_wanted_ = false;
};

}  // namespace

std::unique_ptr<Source> make_tegra_source(const Root& root, const Clock&) {
  auto find = [root] {
    FileGpus gpus;
    const std::string chip = read_bytes(root.sys + "/firmware/devicetree/base/compatible").value_or("");
    if (has_any(chip, kTegraChips) || !find_tegra_gpu(root).empty()) gpus.push_back(std::make_unique<TegraGpu>(root));
    return gpus;
  };
  return std::make_unique<FileSource>(Vendor::tegra, std::move(find), "");
}

}  // namespace lull
