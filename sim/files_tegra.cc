// What a Jetson shows of its GPU: devfreq, the load in per mille, and the power monitor
// of the board.

#include <fmt/format.h>

#include "sim/files.h"

namespace lull::sim {
namespace {

constexpr unsigned kRails = 3;
constexpr std::string_view kRailNames[kRails] = {"VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"};
constexpr unsigned kMillivolts[kRails] = {19300, 19300, 5040};

std::optional<std::string> render_load(const RenderInput& in) { return whole_text(in.now(Metric::util), 10); }

// The first rail is the GPU's.
std::optional<std::string> render_rail(const RenderInput& in) {
  const double watts = in.nth == 0 ? in.now(Metric::power) : 2.5;
  return whole_text(watts, 1e6 / kMillivolts[in.nth]);
}

std::optional<std::string> render_hertz(const RenderInput& in) { return whole_text(in.now(Metric::clock), 1e6); }

// It sleeps by itself while there is nothing to do.
std::optional<std::string> render_railgate(const RenderInput& in) {
  bool any = in.now(Metric::util) > 0;
  each_load(in.scene, in.gpu, in.scene.now_ns, [&](const Load&) { any = true; });
  return any ? "active\n" : "suspended\n";
}

std::optional<std::string> render_zone(const RenderInput& in) { return whole_text(in.now(Metric::temp), 1000); }

}  // namespace

void add_tegra(FileList& list) {
  const Gpu& card = list.card();
  const std::string name = fmt::format("{:x}.gpu", 0x17000000 + card.minor * 0x1000000);
  const std::string device = "devices/platform/bus@0/" + name;
  list.live(device + "/load", render_load);
  list.text(device + "/uevent",
            "DRIVER=gk20a\nOF_NAME=gpu\nOF_FULLNAME=/bus@0/gpu@17000000\n"
            "OF_COMPATIBLE_0=nvidia,ga10b");
  list.link(device + "/subsystem", "bus/platform");
  list.link("bus/platform/devices/" + name, device);
  list.live(device + "/power/runtime_status", render_railgate);
  list.bytes(device + "/of_node/name", std::string("gpu\0", 4));
  list.bytes(device + "/of_node/compatible", std::string("nvidia,ga10b\0", 13));
  const std::string devfreq = device + "/devfreq/" + name;
  list.live(devfreq + "/cur_freq", render_hertz);
  list.text(devfreq + "/max_freq", fmt::format("{}", card.clock_boost * 1'000'000ULL));
  list.text(devfreq + "/min_freq", fmt::format("{}", card.clock_idle * 1'000'000ULL));
  list.text(devfreq + "/governor", "nvhost_podgov");
  list.link(devfreq + "/device", device);
  list.link("class/devfreq/" + name, devfreq);

  const std::string monitor = fmt::format("devices/platform/bus@0/c240000.i2c/i2c-1/1-{:04x}", 0x40 + card.minor);
  list.text(monitor + "/name", "ina3221");
  const std::string at = list.hwmon(monitor, "ina3221") + "/";
  for (unsigned rail = 0; rail < kRails; ++rail) {
    list.text(fmt::format("{}in{}_label", at, rail + 1), kRailNames[rail]);
    list.text(fmt::format("{}in{}_input", at, rail + 1), fmt::format("{}", kMillivolts[rail]));
    list.live(fmt::format("{}curr{}_input", at, rail + 1), render_rail, rail);
    list.text(fmt::format("{}curr{}_max", at, rail + 1), "32760");
  }
  const std::string zone = fmt::format("devices/virtual/thermal/thermal_zone{}", card.minor);
  list.text(zone + "/type", "gpu-thermal");
  list.live(zone + "/temp", render_zone);
  list.link(fmt::format("class/thermal/thermal_zone{}", card.minor), zone);
  list.bytes("firmware/devicetree/base/model", std::string("NVIDIA Jetson AGX Orin Developer Kit\0", 37));
}

}  // namespace lull::sim
