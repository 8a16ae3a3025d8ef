#pragma once
// For tests: folders of cards as amdgpu, i915, xe and devfreq have them, and a source that reads them by a clock of the
// test's own.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/clock.h"
#include "sense/file_tree_test.h"
#include "sense/source.h"

namespace lull {

class CardTree {
 public:
  static std::string device_folder(const std::string& address) { return "sys/devices/pci0000:00/" + address; }
  Root root() const {
    Root root = tree.root();
    root.driver = tree.at("proc/driver/nvidia");
    return root;
  }

  // A PCI card with its nodes; returns the folder of the device.
  std::string add_card(unsigned number, unsigned minor, const std::string& address, const std::string& vendor,
                       const std::string& driver) const {
    const std::string device = device_folder(address);
    const std::string card = device + "/drm/card" + std::to_string(number);
    tree.write(device + "/vendor", vendor + "\n");
    tree.write(device + "/power/runtime_status", "active\n");
    tree.write(card + "/dev", "226:" + std::to_string(number) + "\n");
    tree.write(device + "/drm/renderD" + std::to_string(minor) + "/dev", "226:" + std::to_string(minor) + "\n");
    tree.link(card + "/device", "../../../" + address);
    tree.link("sys/class/drm/card" + std::to_string(number),
              "../../devices/pci0000:00/" + address + "/drm/card" + std::to_string(number));
    tree.link(device + "/driver", "../../../bus/pci/drivers/" + driver);
    return device;
  }

  // An RX 7900 XTX that does nothing.
  std::string add_navi(unsigned number = 0, const std::string& address = "0000:03:00.0") const {
    const std::string device = add_card(number, 128 + number, address, "0x1002", "amdgpu");
    write(device, "device", 0x744c, "0x744c");
    write(device, "class", 0, "0x030000");
    write(device, "gpu_busy_percent", 0);
    write(device, "mem_busy_percent", 0);
    write(device, "mem_info_vram_total", 25753026560);
    write(device, "mem_info_vram_used", 60 << 20);
    tree.write(device + "/product_name", "AMD Radeon RX 7900 XTX\n");
    tree.write(device + "/unique_id", "6f3a1c77d4ee90b" + std::to_string(number) + "\n");
    const std::string hwmon = device + "/hwmon/hwmon" + std::to_string(number);
    tree.write(hwmon + "/name", "amdgpu\n");
    write(hwmon, "power1_average", 17'000'000);
    write(hwmon, "power1_cap", 327'000'000);
    write(hwmon, "temp1_input", 44'000);
    write(hwmon, "temp2_input", 52'000);
    write(hwmon, "freq1_input", 500'000'000);
    write(hwmon, "freq2_input", 96'000'000);
    write(hwmon, "pwm1", 51);
    return device;
  }

  void write(const std::string& folder, const std::string& name, std::int64_t number,
             const std::string& instead = {}) const {
    tree.write(folder + "/" + name, (instead.empty() ? std::to_string(number) : instead) + "\n");
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(tree.at(path)); }

  TestTree tree;
};

// gpu_metrics 1.3.
struct MetricsBlob {
  std::uint16_t gfx = 0;
  std::uint16_t umc = 0;
  std::uint16_t watts = 17;
  std::uint64_t energy = 900'000'000;
  std::uint32_t activity = 0;
  std::uint64_t firmware_time = 111'000'000'000;

  std::string bytes() const {
    std::string blob(120, '\0');
    const auto put_at = [&](std::size_t at, auto value) { std::memcpy(blob.data() + at, &value, sizeof value); };
    put_at(0, std::uint16_t{120});
    blob[2] = 1;
    blob[3] = 3;
    put_at(16, gfx);
    put_at(18, umc);
    put_at(22, watts);
    put_at(24, energy);
    put_at(80, activity);
    put_at(96, firmware_time);
    return blob;
  }
};

// One source over such a tree.
class SampledCards {
 public:
  using Make = std::unique_ptr<Source> (*)(const Root&, const Clock&);
  SampledCards(const CardTree& cards, Make make) : source(make(cards.root(), clock)) {
    clock.advance(std::chrono::hours(1));
    (void)source->open();
  }
  const Reading& sample(Duration later = {}, unsigned gpu = 0) {
    clock.advance(later);
    if (gpu >= attached || attached == 0) {
      (void)source->attach(gpu, clock.now());
      attached = gpu + 1;
    }
    source->sample(gpu, needs, clock.now(), answer);
    sleep.apply(answer);
    return answer.gpu;
  }
  // As the sensor does between two samples.
  void look(Duration later, unsigned gpu = 0) {
    clock.advance(later);
    source->look(gpu, clock.now());
  }
  const Device& device(unsigned gpu = 0) { return source->identity(gpu).device; }

  ManualClock clock;
  std::unique_ptr<Source> source;
  Needs needs{.processes = false};
  Answer answer;
  SleepCover sleep;  // as the sampler has one for each GPU
  unsigned attached = 0;
};

}  // namespace lull
