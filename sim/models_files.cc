// The cards that are read from files: AMD's and Intel's. The second half of models.h.

#include <algorithm>
#include <array>
#include <cstring>

#include "sim/models.h"

namespace lull::sim {
namespace {

struct FileSheet {
  std::string_view key;
  std::string_view alias;
  std::string_view name;
  Vendor vendor;
  std::uint32_t device_id;
  std::uint64_t memory_mib;
  std::uint64_t reserved_mib;  // in use on a card that nobody holds
  double idle, context, limit;
  std::uint32_t temp_idle, temp_busy, temp_critical;
  std::uint32_t fans;
  std::uint32_t clock_idle, clock_boost, mem_idle, mem_boost;
  std::uint32_t pcie_generation;
  std::uint32_t metrics_version, gfx_target, simds;
  std::uint32_t quirks;
};

// clang-format off
constexpr std::array<FileSheet, 6> kFileSheets{{
    {"MI300X", "", "AMD Instinct MI300X OAM", Vendor::amd, 0x74a1, 196592, 283, 141, 191, 750, 38, 72, 100, 0,
     132, 2100, 900, 1300, 5, 6, 90402, 1216, kManyDies | kXcpCards},
    {"MI210", "", "AMD Instinct MI210", Vendor::amd, 0x740f, 65520, 10, 41, 47, 300, 34, 68, 100, 0,
     800, 1700, 400, 1600, 4, 3, 90010, 416, 0},
    {"RX7900XTX", "Navi31", "AMD Radeon RX 7900 XTX", Vendor::amd, 0x744c, 24560, 60, 17, 44, 327, 44, 70, 100, 1,
     500, 2500, 96, 1249, 4, 3, 110000, 192, kRdna},
    {"A770", "ArcA770", "Intel Arc A770 Graphics", Vendor::intel, 0x56a0, 16288, 0, 39, 46, 190, 41, 75, 100, 1,
     300, 2400, 0, 0, 4, 0, 0, 0, 0},
    {"B580", "ArcB580", "Intel Arc B580 Graphics", Vendor::intel, 0xe20b, 12216, 0, 16, 24, 190, 38, 70, 100, 1,
     400, 2850, 0, 0, 4, 0, 0, 0, kXe},
    {"Flex170", "", "Intel Data Center GPU Flex 170", Vendor::intel, 0x56c0, 15812, 0, 33, 40, 150, 40, 74, 100, 0,
     300, 2050, 0, 0, 4, 0, 0, 0, 0},
}};
// clang-format on

// How the driver orders cards of a machine is not how they are on the bus: as on a public server with eight MI210.
constexpr std::array<unsigned, 4> kKfdOrder = {3, 2, 0, 1};

}  // namespace

std::optional<Gpu> file_model(std::string_view key) {
  const auto is = [&](std::string_view own) { return !own.empty() && key == simplified_model(own); };
  const auto* const found = std::ranges::find_if(kFileSheets, [&](const FileSheet& sheet) {
    return is(sheet.key) || is(sheet.alias) || is(sheet.name) || "RX" + std::string(key) == sheet.key;
  });
  if (found == kFileSheets.end()) return std::nullopt;
  const FileSheet& from = *found;
  Gpu gpu;
  gpu.vendor = from.vendor;
  copy_text(gpu.name, from.name);
  copy_text(gpu.vbios, "113-LULL-001");
  gpu.pci_device_id = from.device_id << 16 | (from.vendor == Vendor::amd ? 0x1002U : 0x8086U);
  gpu.memory_total = from.memory_mib << 20;
  gpu.memory_reserved = from.reserved_mib << 20;
  gpu.power_idle = from.idle;
  gpu.power_context = from.context;
  gpu.power_limit = gpu.power_limit_max = from.limit;
  gpu.energy_base_mj = 1'000'000'000;
  gpu.temp_idle = from.temp_idle;
  gpu.temp_busy = from.temp_busy;
  gpu.temp_slowdown = gpu.temp_shutdown = from.temp_critical;
  gpu.fans = from.fans;
  gpu.clock_idle = from.clock_idle;
  gpu.clock_boost = from.clock_boost;
  gpu.mem_clock_idle = from.mem_idle;
  gpu.mem_clock_boost = from.mem_boost;
  gpu.pcie_generation = from.pcie_generation;
  gpu.pcie_width = 16;
  gpu.metrics_version = from.metrics_version;
  gpu.gfx_target = from.gfx_target;
  gpu.simds = from.simds;
  gpu.quirks = from.quirks;
  gpu.sample_buffer = 0;
  return gpu;
}

void add_file_model_names(std::vector<std::string_view>& names) {
  for (const FileSheet& each : kFileSheets) names.push_back(each.key);
}

void number_cards(const std::vector<Gpu*>& gpus) {
  std::uint32_t card = 0;
  std::vector<Gpu*> in_kfd;
  for (Gpu* gpu : gpus) {
    if (!has_render_node(gpu->vendor)) continue;
    gpu->card = card;
    card += (gpu->quirks & kXcpCards) != 0 ? 8 : 1;  // seven for partitions, used or not
    if (gpu->vendor == Vendor::amd) in_kfd.push_back(gpu);
  }
  std::uint32_t node = 2;  // after the processors'
  std::size_t group = 0;
  for (; group + kKfdOrder.size() <= in_kfd.size(); group += kKfdOrder.size())
    for (const unsigned place : kKfdOrder) in_kfd[group + place]->kfd_node = node++;
  for (std::size_t i = in_kfd.size(); i-- > group;) in_kfd[i]->kfd_node = node++;
}

}  // namespace lull::sim
