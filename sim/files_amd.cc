// What amdgpu and its KFD show of a card. Files and units as in amdgpu_pm.c and
// kfd_process.c of the kernel; gpu_metrics as in kgd_pp_interface.h.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/files.h"
#include "sim/machine.h"

namespace lull::sim {
namespace {

constexpr double kEnergyUnit = 15.259e-6;    // joules
constexpr double kActivityPerSecond = 1000;  // percent is added a thousand times a second
constexpr std::uint64_t kWrap32 = std::uint64_t{1} << 32;

bool amd_held(const RenderInput& in) {
  bool any = false;
  each_load(in.scene, in.gpu, in.scene.now_ns, [&](const Load&) { any = true; });
  return any;
}

// What the firmware says, which is not always what the card does.
double amd_busy(const RenderInput& in) {
  const double util = in.now(Metric::util);
  if (!std::isfinite(util)) return util;
  const bool phantom = (in.card().quirks & kPhantomBusy) != 0;
  if ((!phantom && in.card().idle_util == 0) || !amd_held(in)) return util;
  // Of a context at rest one percent more or less.
  const auto flicker = static_cast<double>(in.scene.now_ns / 1'000'000'000 % 2);
  return phantom ? 100 : std::max(util, static_cast<double>(in.card().idle_util) - flicker);
}

std::optional<std::string> render_gpu_busy(const RenderInput& in) { return whole_text(amd_busy(in)); }
std::optional<std::string> render_mem_busy(const RenderInput& in) { return whole_text(in.now(Metric::mem_util)); }

double vram_used(const RenderInput& in) {
  return std::min(static_cast<double>(in.card().memory_total),
                  in.now(Metric::mem_used) + static_cast<double>(in.card().memory_reserved));
}
std::optional<std::string> render_vram_used(const RenderInput& in) {
  return std::isfinite(in.now(Metric::mem_used)) ? whole_text(vram_used(in)) : std::nullopt;
}

std::optional<std::string> render_freq(const RenderInput& in) {
  return whole_text(in.now(in.nth == 0 ? Metric::clock : Metric::mem_clock), 1e6);
}

// "0: 500Mhz *" is the one in force.
std::optional<std::string> render_dpm(const RenderInput& in) {
  const double mhz = in.now(in.nth == 0 ? Metric::clock : Metric::mem_clock);
  if (!std::isfinite(mhz)) return std::nullopt;
  const double low = in.nth == 0 ? in.card().clock_idle : in.card().mem_clock_idle;
  const double high = in.nth == 0 ? in.card().clock_boost : in.card().mem_clock_boost;
  const bool boosts = mhz > (low + high) / 2;
  return fmt::format("0: {:.0f}Mhz{}\n1: {:.0f}Mhz{}\n", boosts ? low : mhz, boosts ? "" : " *", boosts ? mhz : high,
                     boosts ? " *" : "");
}

std::optional<std::string> render_pwm(const RenderInput& in) { return whole_text(in.now(Metric::fan), 2.55); }

// ---- gpu_metrics ---------------------------------------------------------------------------------

// Little-endian, whatever the machine is.
class Blob {
 public:
  template <class T>
  Blob& put(T value, unsigned times = 1) {
    for (unsigned i = 0; i < times; ++i)
      for (unsigned byte = 0; byte < sizeof(T); ++byte)
        bytes_ += static_cast<char>(static_cast<std::uint64_t>(value) >> 8 * byte & 0xFF);
    return *this;
  }
  Blob& u16(double value, unsigned times = 1) {
    // All ones where it cannot be known.
    return put(static_cast<std::uint16_t>(std::isfinite(value) ? std::clamp(value + 0.5, 0.0, 65534.0) : 65535), times);
  }
  Blob& fill_to(std::size_t size) {
    bytes_.resize(size, '\0');
    return *this;
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

struct MetricsValues {
  double busy, mem_busy, watts, temp, clock, mem_clock, fan;
  std::uint64_t energy;
  std::uint64_t activity;
  std::uint64_t time;  // 10 ns
  std::uint64_t samples;
  bool counts;  // activity and firmware time: a graphics chip leaves them all ones
};

MetricsValues metrics_of(const RenderInput& in) {
  MetricsValues values{};
  values.busy = amd_busy(in);
  values.mem_busy = in.now(Metric::mem_util);
  values.watts = in.now(Metric::power);
  values.temp = in.now(Metric::temp);
  values.clock = in.now(Metric::clock);
  values.mem_clock = in.now(Metric::mem_clock);
  values.fan = in.card().fans == 0 ? kUnsupported : in.now(Metric::fan) * 33;
  const double joules = static_cast<double>(energy_mj(in.scene, in.gpu, in.scene.now_ns)) * 1e-3;
  values.energy = static_cast<std::uint64_t>(joules / kEnergyUnit);
  const double wrap_in = static_cast<double>(in.card().wrap_in_ns) * 1e-9 * 100;
  const double start = wrap_in > 0 ? static_cast<double>(kWrap32) - wrap_in * kActivityPerSecond : 0;
  values.activity = static_cast<std::uint64_t>(start + busy_sum(in.scene, in.gpu) * kActivityPerSecond) % kWrap32;
  values.time = static_cast<std::uint64_t>(boot_time(in.scene.state, in.scene.now_ns) / 10);
  values.counts = (in.card().quirks & kRdna) == 0;
  values.samples = static_cast<std::uint64_t>(real_seconds(in.scene) * kActivityPerSecond);
  return values;
}

// 120 bytes: MI200 and Navi.
std::string metrics_1_3(const MetricsValues& v) {
  Blob blob;
  blob.put<std::uint16_t>(120).put<std::uint8_t>(1).put<std::uint8_t>(3);
  blob.u16(v.temp).u16(v.temp + 8).u16(v.temp + 14).u16(v.temp + 3).u16(v.temp + 2).u16(v.temp + 2);
  blob.u16(v.busy).u16(v.mem_busy).u16(0).u16(v.watts);
  blob.put(v.energy).put(v.time * 10);
  for (int average_and_current = 0; average_and_current < 2; ++average_and_current)
    blob.u16(v.clock).u16(1200).u16(v.mem_clock).u16(0, 4);
  blob.put<std::uint32_t>(0).u16(v.fan).u16(16).u16(160).u16(0);
  blob.put(static_cast<std::uint32_t>(v.counts ? v.activity : kWrap32 - 1));
  blob.put(static_cast<std::uint32_t>(v.counts ? v.activity * 2 / 5 : kWrap32 - 1));
  blob.u16(kUnsupported, 4).put(v.counts ? v.time : ~std::uint64_t{0});
  blob.u16(800).u16(750).u16(1250).u16(kUnsupported).put<std::uint64_t>(0);
  return blob.take();
}

// 1664 bytes: MI300 of a recent driver, with eight parts of the chip.
std::string metrics_1_6(const MetricsValues& v) {
  constexpr unsigned kParts = 8;
  Blob blob;
  blob.put<std::uint16_t>(1664).put<std::uint8_t>(1).put<std::uint8_t>(6);
  blob.u16(v.temp).u16(v.temp - 3).u16(v.temp + 2).u16(v.watts).u16(v.busy).u16(v.mem_busy);
  blob.put(v.energy).put(v.time * 10).put(static_cast<std::uint32_t>(v.samples));
  blob.put<std::uint32_t>(0, 6).u16(16).u16(320).u16(16).u16(32);
  blob.put(static_cast<std::uint32_t>(v.activity)).put(static_cast<std::uint32_t>(v.activity / 4));
  blob.put<std::uint32_t>(0).put<std::uint64_t>(0, 5).put<std::uint32_t>(0, 2).put<std::uint64_t>(0, 16);
  blob.put(v.time).u16(v.clock, 8).u16(29, 12).u16(v.mem_clock).u16(1).fill_to(312);
  for (unsigned part = 0; part < kParts; ++part) {
    const bool used = part == 0;  // the whole card is one partition
    blob.put(used ? static_cast<std::uint32_t>(v.busy) : 0xFFFFFFFFU, 8).u16(0, 36);
    blob.put(used ? v.activity : ~std::uint64_t{0}, 8);
  }
  return blob.fill_to(1664).take();
}

std::optional<std::string> render_metrics(const RenderInput& in) {
  if (!std::isfinite(in.now(Metric::util))) return std::nullopt;
  const MetricsValues values = metrics_of(in);
  return in.card().metrics_version == 3 ? metrics_1_3(values) : metrics_1_6(values);
}

// ---- the card ------------------------------------------------------------------------------------

void add_amd_hwmon(FileList& list, const std::string& device) {
  const Gpu& card = list.card();
  const std::string at = list.hwmon(device, "amdgpu") + "/";
  const bool many_dies = (card.quirks & kManyDies) != 0;
  list.live(at + (many_dies ? "power1_input" : "power1_average"), render_power);
  for (const char* name : {"power1_cap", "power1_cap_default"}) list.live(at + name, render_limit);
  list.text(at + "power1_cap_max", fmt::format("{:.0f}", card.power_limit_max * 1e6));
  list.text(at + "power1_cap_min", "0");
  list.text(at + "power1_label", "PPT");
  // The first of these is the temperature that was set. Many dies have no edge.
  unsigned more = 0;
  for (unsigned sensor = many_dies ? 2 : 1; sensor <= 3; ++sensor) {
    const auto name = [&](std::string_view what) { return fmt::format("{}temp{}_{}", at, sensor, what); };
    list.live(name("input"), render_temp, more);
    list.text(name("label"), sensor == 1 ? "edge" : sensor == 2 ? "junction" : "mem");
    list.text(name("crit"), fmt::format("{}", (card.temp_slowdown + (sensor == 2 ? 10 : sensor == 3 ? 5 : 0)) * 1000));
    more += sensor == 1 ? 8 : 6;
  }
  for (unsigned clock = 0; clock < 2; ++clock) {
    list.live(fmt::format("{}freq{}_input", at, clock + 1), render_freq, clock);
    list.text(fmt::format("{}freq{}_label", at, clock + 1), clock == 0 ? "sclk" : "mclk");
  }
  if (!many_dies) {
    list.text(at + "in0_input", "750");
    list.text(at + "in0_label", "vddgfx");
  }
  if (card.fans == 0) return;
  list.live(at + "fan1_input", render_fan);
  list.live(at + "pwm1", render_pwm);
  for (const auto& [name, content] : {std::pair{"fan1_min", "0"},
                                      {"fan1_max", "3300"},
                                      {"fan1_enable", "0"},
                                      {"pwm1_enable", "2"},
                                      {"pwm1_min", "0"},
                                      {"pwm1_max", "255"}})
    list.text(at + name, content);
}

// MI300 has a card for each partition that could be, even while it is whole: on the platform bus, without a vendor.
void add_xcp_cards(FileList& list) {
  for (unsigned part = 1; part < 8; ++part) {
    const unsigned card = list.card().card + part;
    const std::string device = fmt::format("devices/platform/amdgpu_xcp_{}", card - 1 - list.card().card / 8);
    const std::string name = device.substr(device.rfind('/') + 1);
    list.text(device + "/uevent", fmt::format("MODALIAS=platform:{}", name));
    list.link(device + "/subsystem", "bus/platform");
    list.link("bus/platform/devices/" + name, device);
    list.drm(device, card);
  }
}

}  // namespace

void add_amd(FileList& list) {
  const Gpu& card = list.card();
  const bool draws = (card.quirks & kRdna) != 0;
  const std::string device = list.pci("amdgpu", 0x1002, draws ? 0x030000 : 0x120000);
  const std::string at = device + "/";
  list.live(at + "gpu_busy_percent", render_gpu_busy);
  list.live(at + "mem_busy_percent", render_mem_busy);
  for (const char* name : {"mem_info_vram_total", "mem_info_vis_vram_total"})
    list.text(at + name, fmt::format("{}", card.memory_total));
  for (const char* name : {"mem_info_vram_used", "mem_info_vis_vram_used"}) list.live(at + name, render_vram_used);
  list.text(at + "mem_info_gtt_total", "34359738368");
  list.text(at + "mem_info_gtt_used", "20971520");
  list.text(at + "mem_info_vram_vendor", "samsung");
  list.text(at + "power_dpm_force_performance_level", "auto");
  list.text(at + "power_dpm_state", "performance");
  list.text(at + "vbios_version", card.vbios);
  list.live(at + "pp_dpm_sclk", render_dpm, 0);
  list.live(at + "pp_dpm_mclk", render_dpm, 1);
  list.text(at + "pp_dpm_pcie", "0: 32.0GT/s, x16 *");
  if (card.metrics_version != 0) list.live(at + "gpu_metrics", render_metrics);
  list.text(at + "product_name", card.name);
  list.text(at + "unique_id", fmt::format("{:016x}", card.unique_id));
  if ((card.quirks & kManyDies) != 0) {
    list.text(at + "current_compute_partition", (card.quirks & kSplit) != 0 ? "CPX" : "SPX");
    list.text(at + "available_compute_partition", "SPX, DPX, QPX, CPX");
    list.text(at + "current_memory_partition", "NPS1");
  }
  const std::string node = list.drm(device, card.card);
  if (draws) {  // a plug: a folder beside the cards that is none
    list.text(node + "/card" + std::to_string(card.card) + "-DP-1/status", "disconnected");
    list.link(fmt::format("class/drm/card{}-DP-1", card.card), fmt::format("{}/card{}-DP-1", node, card.card));
  }
  add_amd_hwmon(list, device);
  if ((card.quirks & kXcpCards) != 0) add_xcp_cards(list);
}

// ---- KFD -----------------------------------------------------------------------------------------

namespace {

// `part`: of the card; 0 where it is whole.
std::string kfd_properties(const Gpu* card, unsigned part) {
  const bool many = card != nullptr && (card->quirks & kManyDies) != 0;
  const std::pair<std::string_view, std::uint64_t> rows[] = {
      {"cpu_cores_count", card == nullptr ? 64 : 0},
      {"simd_count", card == nullptr ? 0 : card->simds / kfd_places(*card)},
      {"mem_banks_count", 1},
      {"caches_count", 0},
      {"io_links_count", 1},
      {"max_waves_per_simd", card == nullptr ? 0 : 8},
      {"wave_front_size", card == nullptr ? 0 : 64},
      {"array_count", many ? 32 : 12},
      {"simd_arrays_per_engine", many ? 1 : 2},
      {"cu_per_simd_array", many ? 10 : 8},
      {"simd_per_cu", card == nullptr ? 0 : 4},
      {"gfx_target_version", card == nullptr ? 0 : card->gfx_target},
      {"vendor_id", card == nullptr ? 0 : 0x1002},
      {"device_id", card == nullptr ? 0 : card->pci_device_id >> 16},
      {"location_id", card == nullptr ? 0 : card->pci_bus << 8 | card->pci_device << 3 | part},
      {"domain", card == nullptr ? 0 : card->pci_domain},
      {"drm_render_minor", card == nullptr ? 0 : 128 + card->card + part},
      {"hive_id", 0},
      {"unique_id", card == nullptr ? 0 : card->unique_id},
      {"num_xcc", card == nullptr ? 0
                  : many          ? kPartitions / kfd_places(*card)
                                  : 1},
      {"max_engine_clk_fcompute", card == nullptr ? 0 : card->clock_boost},
      {"local_mem_size", 0},
  };
  std::string text;
  for (const auto& [name, number] : rows) text += fmt::format("{} {}\n", name, number);
  text.pop_back();
  return text;
}

std::optional<std::string> render_used_memory(const RenderInput& in) { return render_vram_used(in); }

void add_kfd_node(FileList& list, unsigned number, const Gpu* card, unsigned part = 0) {
  const std::string at = fmt::format("devices/virtual/kfd/kfd/topology/nodes/{}/", number);
  list.text(at + "gpu_id", fmt::format("{}", card == nullptr ? 0 : card->kfd_id + part));
  list.text(at + "name", card == nullptr ? "" : "ip discovery");
  list.text(at + "properties", kfd_properties(card, part));
  list.text(at + "io_links/0/properties",
            fmt::format("type 2\nversion_major 0\nversion_minor 0\nnode_from {}\nnode_to {}\nweight 20\nmin_latency 0\n"
                        "max_latency 0\nmin_bandwidth 312\nmax_bandwidth 64000\nrecommended_transfer_size 0\nflags 1",
                        number, card == nullptr ? 1 - number : 0));
  list.text(at + "mem_banks/0/properties",
            fmt::format("heap_type {}\nsize_in_bytes {}\nflags 0\nwidth 8192\nmem_clk_max {}", card == nullptr ? 0 : 2,
                        card == nullptr ? std::uint64_t{64} << 30 : card->memory_total / kfd_places(*card),
                        card == nullptr ? 3200 : card->mem_clock_boost));
  if (card == nullptr)
    list.text(at + "mem_banks/0/used_memory", "0");
  else
    list.live(at + "mem_banks/0/used_memory", render_used_memory);
}

bool in_kfd(const Load& load) { return (load.kind & kCompute) != 0; }

}  // namespace

void add_kfd(FileList& list) {
  const State& state = list.state();
  bool any = false;
  for (unsigned gpu = 0; gpu < state.gpu_count; ++gpu) {
    if (state.gpus[gpu].kfd_node == 0) continue;
    list.gpu(gpu);
    const Gpu& card = state.gpus[gpu];
    for (unsigned part = 0; part < kfd_places(card); ++part) add_kfd_node(list, card.kfd_node + part, &card, part);
    any = true;
  }
  if (!any) return;
  list.gpu(kNone);
  for (unsigned processor = 0; processor < 2; ++processor) add_kfd_node(list, processor, nullptr);
  const std::string at = "devices/virtual/kfd/kfd/";
  list.text(at + "topology/generation_id", "2");
  list.text(at + "topology/system_properties",
            "platform_oem 12639470062155106881\nplatform_id 2314885530279477317\nplatform_rev 2");
  list.text(at + "dev", "511:0");
  list.text(at + "uevent", "MAJOR=511\nMINOR=0\nDEVNAME=kfd\nDEVMODE=0666");
  list.folder(std::string(kKfdProcesses));
  list.link("class/kfd/kfd", "devices/virtual/kfd/kfd");
  list.text("module/amdgpu/initstate", "live");
  list.text("module/amdgpu/version", "6.12.12");
}

std::vector<ProcessFile> kfd_files(const Scene& scene) {
  struct Use {
    std::uint64_t memory = 0;
    double util = 0;
    bool queues = false;
  };
  std::map<std::uint32_t, std::map<unsigned, Use>> processes;
  for (unsigned gpu = 0; gpu < scene.state.gpu_count; ++gpu)
    if (scene.state.gpus[gpu].kfd_node != 0)
      each_load(scene, gpu, scene.now_ns, [&](const Load& load) {
        if (!in_kfd(load)) return;
        Use& use = processes[host_pid_of(scene.state, load)][gpu];
        use.memory += step_at(load, scene.now_ns).memory;
        use.util += step_at(load, scene.now_ns).util;
        use.queues = true;
      });
  std::vector<ProcessFile> files;
  unsigned pasid = 32769;
  for (auto& [pid, uses] : processes) {
    const std::string at = fmt::format("{}/{}/", kKfdProcesses, pid);
    files.push_back({at + "pasid", fmt::format("{}\n", ++pasid), kNone});
    unsigned queue = 0;
    // Every card and partition that it may open has a file, used or not. Loads are on the first partition.
    for (unsigned gpu = 0; gpu < scene.state.gpu_count; ++gpu) {
      const Gpu& card = scene.state.gpus[gpu];
      if (card.kfd_node == 0) continue;
      const Use use = uses[gpu];
      for (unsigned part = 0; part < kfd_places(card); ++part) {
        const auto add = [&](std::string_view name, auto number) {
          files.push_back({fmt::format("{}{}", at, fmt::format(fmt::runtime(name), card.kfd_id + part)),
                           fmt::format("{}\n", part == 0 ? number : 0), gpu});
        };
        add("vram_{}", use.memory);
        add("sdma_{}", use.queues ? 1200 : 0);
        add("stats_{}/cu_occupancy", static_cast<unsigned>(card.simds / 4 * std::min(use.util, 100.0) / 100));
        add("stats_{}/evicted_ms", 0);
      }
      for (int i = 0; use.queues && i < 2; ++i, ++queue)
        for (const auto& [name, number] : {std::pair{"gpuid", card.kfd_id}, {"size", 8388608U}, {"type", 2U}})
          files.push_back({fmt::format("{}queues/{}/{}", at, queue, name), fmt::format("{}", number), gpu});
    }
  }
  return files;
}

// What computes by ROCm is in KFD, and not here.
std::string amd_fdinfo(const Scene& scene, const Load& load) {
  const bool draws = (load.kind & kGraphics) != 0;
  const std::uint64_t kib = draws ? step_at(load, scene.now_ns).memory >> 10 : 0;
  const auto ns = static_cast<std::uint64_t>(draws ? busy_seconds(scene, load) * 1e9 : 0);
  return fmt::format(
      "drm-driver:\tamdgpu\ndrm-client-id:\t{}\ndrm-pdev:\t{}\npasid:\t{}\n"
      "drm-memory-vram:\t{} KiB\ndrm-memory-gtt: \t0 KiB\ndrm-memory-cpu: \t0 KiB\n"
      "drm-engine-gfx:\t{} ns\ndrm-engine-compute:\t0 ns\n",
      load.cell + 1, pci_address(scene.state.gpus[load.gpu]), 32770 + load.cell, kib, ns);
}

}  // namespace lull::sim
