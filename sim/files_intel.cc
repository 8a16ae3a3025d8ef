// What i915 and xe show of a card: idle time of each GT, energy, limits. Names and units
// as in the kernel's Documentation/ABI/testing/sysfs-driver-intel-*.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/files.h"
#include "sim/machine.h"

namespace lull::sim {
namespace {

constexpr double kXeWrapMs = 4294967296.0 * 1.28e-3;  // a counter of 32 bits and 1.28 µs
constexpr double kI915WrapMs = 4294967296.0;          // printed with 32 bits
constexpr double kXeClock = 19.2e6;                   // Hz, of the cycles in fdinfo

// Milliseconds in which a GT slept. Media (GT 1) has nothing to do.
std::optional<std::string> render_residency(const RenderInput& in) {
  if (!std::isfinite(in.now(Metric::util))) return std::nullopt;
  const Gpu& card = in.card();
  const double wrap = (card.quirks & kXe) != 0 ? kXeWrapMs : kI915WrapMs;
  const double start = card.wrap_in_ns > 0 ? wrap - static_cast<double>(card.wrap_in_ns) * 1e-6 : 812345;
  if ((card.quirks & kResidencyStands) != 0) return whole_text(start);
  const double busy = in.nth == 0 ? busy_sum(in.scene, in.gpu) / 100 : 0;
  const double idle_ms = std::max(0.0, real_seconds(in.scene) - busy) * 1e3;
  return whole_text(std::floor(std::fmod(start + idle_ms, wrap)));
}

std::optional<std::string> render_idle_status(const RenderInput& in) {
  return in.nth == 0 && in.now(Metric::util) > 0 ? "gt-c0\n" : "gt-c6\n";
}

// 0 while it sleeps.
std::optional<std::string> render_actual_mhz(const RenderInput& in) {
  return in.now(Metric::util) > 0 ? whole_text(in.now(Metric::clock)) : "0\n";
}
std::optional<std::string> render_mhz(const RenderInput& in) { return whole_text(in.now(Metric::clock)); }

void add_i915(FileList& list, const std::string& node, const std::string& device) {
  const Gpu& card = list.card();
  const std::string low = fmt::format("{}", card.clock_idle);
  const std::string high = fmt::format("{}", card.clock_boost);
  const std::string gt = node + "/gt/gt0/";
  list.live(gt + "rc6_residency_ms", render_residency);
  list.live(node + "/power/rc6_residency_ms", render_residency);
  list.live(gt + "rps_act_freq_mhz", render_actual_mhz);
  list.live(gt + "rps_cur_freq_mhz", render_mhz);
  list.text(gt + "rps_max_freq_mhz", high);
  list.text(gt + "id", "0");
  list.live(node + "/gt_act_freq_mhz", render_actual_mhz);
  list.live(node + "/gt_cur_freq_mhz", render_mhz);
  for (const char* name : {"gt_max_freq_mhz", "gt_boost_freq_mhz", "gt_RP0_freq_mhz"})
    list.text(node + "/" + name, high);
  for (const char* name : {"gt_min_freq_mhz", "gt_RP1_freq_mhz", "gt_RPn_freq_mhz"}) list.text(node + "/" + name, low);
  const std::string at = list.hwmon(device, "i915") + "/";
  list.live(at + "energy1_input", render_energy);
  list.live(at + "power1_max", render_limit);
  list.text(at + "power1_crit", "0");
  list.text(at + "power1_max_interval", "28000");
  list.text(at + "in0_input", "646");
  if (card.fans > 0) list.live(at + "fan1_input", render_fan);
  list.live(at + "temp1_input", render_temp);
}

void add_xe(FileList& list, const std::string& device) {
  const Gpu& card = list.card();
  for (unsigned gt = 0; gt < 2; ++gt) {
    const std::string at = fmt::format("{}/tile0/gt{}/", device, gt);
    list.live(at + "gtidle/idle_residency_ms", render_residency, gt);
    list.live(at + "gtidle/idle_status", render_idle_status, gt);
    list.text(at + "gtidle/name", gt == 0 ? "gt0-rc" : "gt1-mc");
    list.live(at + "freq0/act_freq", render_actual_mhz);
    list.live(at + "freq0/cur_freq", render_mhz);
    list.text(at + "freq0/max_freq", fmt::format("{}", card.clock_boost));
  }
  const std::string at = list.hwmon(device, "xe") + "/";
  unsigned channel = 1;
  for (const char* label : {"card", "pkg"}) {
    const auto name = [&](std::string_view what, std::string_view which) {
      return fmt::format("{}{}{}_{}", at, what, channel, which);
    };
    list.live(name("energy", "input"), render_energy);
    list.text(name("energy", "label"), label);
    list.live(name("power", "max"), render_limit);
    list.text(name("power", "label"), label);
    list.text(name("power", channel == 1 ? "cap" : "crit"), "0");
    ++channel;
  }
  list.live(at + "temp2_input", render_temp);
  list.text(at + "temp2_label", "pkg");
  list.live(at + "temp3_input", render_temp, 4);
  list.text(at + "temp3_label", "vram");
  list.text(at + "in1_input", "650");
  list.text(at + "in1_label", "pkg");
  if (card.fans > 0) list.live(at + "fan1_input", render_fan);
}

}  // namespace

void add_intel(FileList& list) {
  const bool xe = (list.card().quirks & kXe) != 0;
  // One without a plug is a display controller of another kind.
  const std::string device = list.pci(xe ? "xe" : "i915", 0x8086, list.card().fans > 0 ? 0x030000 : 0x038000);
  const std::string node = list.drm(device, list.card().card);
  if (xe)
    add_xe(list, device);
  else
    add_i915(list, node, device);
}

std::string intel_fdinfo(const Scene& scene, const Load& load) {
  const bool draws = (load.kind & kGraphics) != 0;
  const std::uint64_t kib = step_at(load, scene.now_ns).memory >> 10;
  const double busy = busy_seconds(scene, load);
  const std::string head =
      fmt::format("drm-client-id:\t{}\ndrm-pdev:\t{}\n", load.cell + 1, pci_address(scene.state.gpus[load.gpu]));
  if ((scene.state.gpus[load.gpu].quirks & kXe) == 0) {
    const auto ns = [&](bool mine) { return static_cast<std::uint64_t>(mine ? busy * 1e9 : 0); };
    return fmt::format(
        "drm-driver:\ti915\n{}drm-total-system0:\t4096 KiB\ndrm-total-local0:\t{} KiB\ndrm-resident-local0:\t{} KiB\n"
        "drm-engine-render:\t{} ns\ndrm-engine-copy:\t0 ns\ndrm-engine-video:\t0 ns\ndrm-engine-capacity-video:\t2\n"
        "drm-engine-video-enhance:\t0 ns\ndrm-engine-capacity-video-enhance:\t2\ndrm-engine-compute:\t{} ns\n",
        head, kib, kib, ns(draws), ns(!draws));
  }
  const auto total = static_cast<std::uint64_t>(real_seconds(scene) * kXeClock);
  std::string text = fmt::format(
      "drm-driver:\txe\n{}drm-total-system:\t4096 KiB\ndrm-total-vram0:\t{} KiB\ndrm-resident-vram0:\t{} KiB\n", head,
      kib, kib);
  for (const std::string_view engine : {"rcs", "bcs", "vcs", "vecs", "ccs"}) {
    const bool mine = engine == (draws ? "rcs" : "ccs");
    text += fmt::format("drm-cycles-{}:\t{}\ndrm-total-cycles-{}:\t{}\n", engine,
                        static_cast<std::uint64_t>(mine ? busy * kXeClock : 0), engine, total);
    if (engine == "vcs" || engine == "vecs") text += fmt::format("drm-engine-capacity-{}:\t2\n", engine);
  }
  return text;
}

}  // namespace lull::sim
