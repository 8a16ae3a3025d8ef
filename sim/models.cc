#include "sim/models.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>

#include "nvml/abi.h"

namespace lull::sim {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

// "rtx 4090" and "RTX-4090" are one: letters and digits, in capitals.
std::string simplified_model(std::string_view name) {
  std::string key;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      key += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return key;
}

// What tells one card from another; the rest is the same for all.
struct Sheet {
  std::string_view key;
  std::string_view name;
  std::uint64_t memory_mib;
  std::uint64_t reserved_mib;
  double idle, context, limit, limit_min, limit_max;
  std::uint32_t temp_idle, temp_busy, slowdown, shutdown;
  std::uint32_t fans;
  std::uint32_t clock_idle, clock_boost, mem_idle, mem_boost;
  std::uint32_t pstate_idle;
  std::uint32_t architecture, major, minor, brand;
  std::uint32_t cores, multiprocessors, bus_width, pcie_generation;
  std::uint32_t ecc;
  std::uint32_t mig;
  std::uint32_t links, link_version;
  std::uint32_t device_id;
  std::string_view vbios;
  std::uint32_t quirks = 0;
  double module_power = 0;
};

// clang-format off
constexpr std::array<Sheet, 16> kSheets{{
    {"B200", "NVIDIA B200", 183359, 744, 140, 190, 1000, 200, 1000, 30, 66, 87, 92, 0,
     120, 1965, 3996, 3996, 0, nvml::kArchBlackwell, 10, 0, nvml::kBrandNvidia, 18944, 148, 8192, 6, 2, 1, 18, 5, 0x290110DE, "97.00.82.00.0F"},
    // Of the Grace Hopper module the energy counter counts the processor and its memory, too.
    {"GH200", "NVIDIA GH200 480GB", 97871, 1103, 90, 125, 900, 100, 900, 30, 66, 87, 92, 0,
     345, 1980, 2619, 2619, 0, nvml::kArchHopper, 9, 0, nvml::kBrandNvidia, 16896, 132, 6144, 5, 2, 1, 18, 4, 0x234210DE, "96.00.84.00.02", 0, 160},
    // Shares the machine's memory; what loads use of it is known to their own list alone.
    {"GB10", "NVIDIA GB10", 122504, 0, 4, 11, 140, 20, 140, 38, 75, 90, 95, 0,
     208, 2418, 208, 2418, 8, nvml::kArchBlackwell, 12, 1, nvml::kBrandNvidia, 6144, 48, 256, 5, 0, 0, 0, 0, 0x2E1210DE, "9A.0B.18.00.00",
     kUnifiedMemory | kNoPowerLimit, 0},
    {"Orin", "Orin (nvgpu)", 30697, 0, 3, 5, 60, 15, 60, 40, 70, 99, 104, 0,
     115, 1300, 204, 3199, 8, nvml::kArchAmpere, 8, 7, nvml::kBrandUnknown, 2048, 16, 256, 4, 0, 0, 0, 0, 0x229910DE, "N/A",
     kIdentityOnly | kUnifiedMemory | kNoPowerLimit, 0},
    {"H200", "NVIDIA H200", 143771, 700, 75, 125, 700, 200, 700, 30, 66, 87, 92, 0,
     345, 1980, 3201, 3201, 0, nvml::kArchHopper, 9, 0, nvml::kBrandNvidia, 16896, 132, 6144, 5, 2, 1, 18, 4, 0x233510DE, "96.00.99.00.01"},
    {"H100", "NVIDIA H100 80GB HBM3", 81559, 516, 70, 120, 700, 200, 700, 30, 66, 87, 92, 0,
     345, 1980, 2619, 2619, 0, nvml::kArchHopper, 9, 0, nvml::kBrandNvidia, 16896, 132, 5120, 5, 2, 1, 18, 4, 0x233010DE, "96.00.89.00.01"},
    {"A100", "NVIDIA A100-SXM4-80GB", 81920, 834, 52, 75, 400, 100, 400, 29, 63, 89, 92, 0,
     210, 1410, 1593, 1593, 0, nvml::kArchAmpere, 8, 0, nvml::kBrandNvidia, 6912, 108, 5120, 4, 2, 1, 12, 3, 0x20B210DE, "92.00.45.00.05"},
    {"A100-40GB", "NVIDIA A100-SXM4-40GB", 40960, 620, 48, 70, 400, 100, 400, 29, 63, 89, 92, 0,
     210, 1410, 1215, 1215, 0, nvml::kArchAmpere, 8, 0, nvml::kBrandNvidia, 6912, 108, 5120, 4, 2, 1, 12, 3, 0x20B010DE, "92.00.19.00.01"},
    {"V100", "Tesla V100-SXM2-16GB", 16384, 240, 40, 56, 300, 150, 300, 33, 64, 87, 90, 0,
     135, 1530, 877, 877, 0, nvml::kArchVolta, 7, 0, nvml::kBrandTesla, 5120, 80, 4096, 3, 2, 0, 6, 2, 0x1DB110DE, "88.00.4F.00.09"},
    {"L40S", "NVIDIA L40S", 46068, 665, 34, 82, 350, 100, 350, 30, 68, 88, 92, 0,
     210, 2520, 405, 9001, 8, nvml::kArchAda, 8, 9, nvml::kBrandNvidia, 18176, 142, 384, 4, 2, 0, 0, 0, 0x26B910DE, "95.02.66.00.02"},
    {"L4", "NVIDIA L4", 23034, 471, 12, 29, 72, 40, 72, 34, 72, 88, 92, 0,
     210, 2040, 405, 6251, 8, nvml::kArchAda, 8, 9, nvml::kBrandNvidia, 7424, 58, 192, 4, 2, 0, 0, 0, 0x27B810DE, "95.04.29.00.06"},
    {"A10G", "NVIDIA A10G", 23028, 526, 16, 58, 300, 100, 300, 28, 62, 88, 95, 0,
     210, 1710, 405, 6251, 8, nvml::kArchAmpere, 8, 6, nvml::kBrandNvidia, 9216, 80, 384, 4, 2, 0, 0, 0, 0x223710DE, "94.02.75.00.01"},
    {"RTX4090", "NVIDIA GeForce RTX 4090", 24564, 354, 16, 58, 450, 150, 600, 33, 70, 87, 92, 2,
     210, 2520, 405, 10501, 8, nvml::kArchAda, 8, 9, nvml::kBrandGeForce, 16384, 128, 384, 4, 0, 0, 0, 0, 0x268410DE, "95.02.18.80.87"},
    {"RTX3090", "NVIDIA GeForce RTX 3090", 24576, 316, 21, 105, 350, 100, 385, 34, 72, 95, 98, 2,
     210, 1695, 405, 9751, 8, nvml::kArchAmpere, 8, 6, nvml::kBrandGeForce, 10496, 82, 384, 4, 0, 0, 4, 3, 0x220410DE, "94.02.42.00.A9"},
    {"RTX2080Ti", "NVIDIA GeForce RTX 2080 Ti", 11264, 244, 14, 56, 250, 100, 280, 34, 78, 91, 94, 1,
     300, 1545, 405, 7000, 8, nvml::kArchTuring, 7, 5, nvml::kBrandGeForce, 4352, 68, 352, 3, 0, 0, 2, 2, 0x1E0710DE, "90.02.0B.00.0E"},
    {"T4", "Tesla T4", 15360, 393, 9, 27, 70, 60, 70, 32, 74, 93, 96, 0,
     300, 1590, 405, 5001, 8, nvml::kArchTuring, 7, 5, nvml::kBrandTesla, 2560, 40, 256, 3, 2, 0, 0, 0, 0x1EB810DE, "90.04.96.00.9F"},
}};
// clang-format on

const Sheet* sheet(std::string_view name) {
  const std::string key = simplified_model(name);
  if (key.empty()) return nullptr;
  for (const Sheet& each : kSheets)
    if (const std::string own = simplified_model(each.key);
        key == own || "RTX" + key == own || key == simplified_model(each.name))
      return &each;
  return nullptr;
}

// Well mixed, the same every time: simulated UUIDs do not change from run to run.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// 0 of a host without a name, so that its UUIDs are what they always were.
std::uint64_t seed_of(std::string_view host) {
  std::uint64_t seed = 0;
  for (const char letter : host) seed = mix(seed + static_cast<unsigned char>(letter));
  return seed;
}

template <std::size_t N>
void put_uuid(char (&field)[N], const char* prefix, std::uint64_t seed) {
  const std::uint64_t a = mix(seed);
  const std::uint64_t b = mix(a);
  std::snprintf(field, N, "%s-%08x-%04x-%04x-%04x-%012llx", prefix, static_cast<unsigned>(a >> 32),
                static_cast<unsigned>(a >> 16) & 0xFFFF, static_cast<unsigned>(a) & 0xFFFF,
                static_cast<unsigned>(b >> 48), static_cast<unsigned long long>(b & 0xFFFFFFFFFFFFULL));
}

struct FileSheet {
  std::string_view key;
  std::string_view alias;
  std::string_view name;
  Vendor vendor;
  std::uint32_t device_id;
  std::uint64_t memory_mib;
  std::uint64_t reserved_mib;  // in use on an unused GPU
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

// What the sheets of all vendors have.
template <class AnySheet>
Gpu gpu_of(const AnySheet& from) {
  Gpu gpu;
  copy_text(gpu.name, from.name);
  gpu.memory_total = from.memory_mib * kMiB;
  gpu.memory_reserved = from.reserved_mib * kMiB;
  gpu.power_idle = from.idle;
  gpu.power_context = from.context;
  gpu.power_limit = from.limit;
  gpu.temp_idle = from.temp_idle;
  gpu.temp_busy = from.temp_busy;
  gpu.fans = from.fans;
  gpu.clock_idle = from.clock_idle;
  gpu.clock_boost = from.clock_boost;
  gpu.mem_clock_idle = from.mem_idle;
  gpu.mem_clock_boost = from.mem_boost;
  gpu.pcie_generation = from.pcie_generation;
  gpu.pcie_width = 16;
  gpu.quirks = from.quirks;
  return gpu;
}

// AMD's and Intel's, by a simplified name.
std::optional<Gpu> file_model(std::string_view key) {
  const auto is = [&](std::string_view own) { return !own.empty() && key == simplified_model(own); };
  const auto* const found = std::ranges::find_if(kFileSheets, [&](const FileSheet& sheet) {
    return is(sheet.key) || is(sheet.alias) || is(sheet.name) || "RX" + std::string(key) == sheet.key;
  });
  if (found == kFileSheets.end()) return std::nullopt;
  const FileSheet& from = *found;
  Gpu gpu = gpu_of(from);
  gpu.vendor = from.vendor;
  copy_text(gpu.vbios, "113-LULL-001");
  gpu.pci_device_id = from.device_id << 16 | (from.vendor == Vendor::amd ? 0x1002U : 0x8086U);
  gpu.power_limit_max = from.limit;
  gpu.energy_base_mj = 1'000'000'000;
  gpu.temp_slowdown = gpu.temp_shutdown = from.temp_critical;
  gpu.metrics_version = from.metrics_version;
  gpu.gfx_target = from.gfx_target;
  gpu.simds = from.simds;
  gpu.sample_buffer = 0;
  return gpu;
}

}  // namespace

std::optional<Gpu> model(std::string_view name) {
  const Sheet* found = sheet(name);
  if (found == nullptr) return file_model(simplified_model(name));
  const Sheet& from = *found;
  Gpu gpu = gpu_of(from);
  copy_text(gpu.vbios, from.vbios);
  copy_text(gpu.part_number, "900-00000-0000-000");
  gpu.pci_device_id = from.device_id;
  gpu.pci_subsystem_id = 0x000010DE;
  gpu.bar1_total = from.brand == nvml::kBrandGeForce ? 256 * kMiB : 131072 * kMiB;
  gpu.power_limit_min = from.limit_min;
  gpu.power_limit_max = from.limit_max;
  gpu.energy_base_mj = 1'000'000;
  gpu.temp_slowdown = from.slowdown;
  gpu.temp_shutdown = from.shutdown;
  gpu.pstate_idle = from.pstate_idle;
  gpu.architecture = from.architecture;
  gpu.compute_major = from.major;
  gpu.compute_minor = from.minor;
  gpu.brand = from.brand;
  gpu.cores = from.cores;
  gpu.multiprocessors = from.multiprocessors;
  gpu.memory_bus_width = from.bus_width;
  gpu.ecc = from.ecc;
  gpu.mig_capable = from.mig;
  gpu.link_count = from.links;
  gpu.link_version = from.link_version;
  gpu.module_power = from.module_power;
  if (from.key == "Orin") gpu.vendor = Vendor::tegra;
  return gpu;
}

std::vector<std::string_view> model_names() {
  std::vector<std::string_view> names;
  for (const Sheet& each : kSheets) names.push_back(each.key);
  for (const FileSheet& each : kFileSheets) names.push_back(each.key);
  return names;
}

void place(Gpu& gpu, unsigned index, unsigned of, std::string_view host) {
  const std::uint64_t seed = seed_of(host);
  if (gpu.vendor == Vendor::amd) {  // by its unique_id, as ROCm names it
    gpu.unique_id = mix(0x616d640000ULL + index + seed) | 1ULL << 60;
    std::snprintf(gpu.uuid, sizeof gpu.uuid, "GPU-%016llx", static_cast<unsigned long long>(gpu.unique_id));
    gpu.kfd_id = 4099 + 89 * index;
  } else if (gpu.vendor != Vendor::intel) {  // which has none
    put_uuid(gpu.uuid, "GPU", 0x6c756c6c0000ULL + index + seed);
  }
  std::snprintf(gpu.serial, sizeof gpu.serial, "16%011llu",
                static_cast<unsigned long long>(mix(index + seed) % 100000000000ULL));
  // Buses grow with the index, as NVML orders by bus; a domain holds 28 cards.
  gpu.pci_domain = index / 28;
  gpu.pci_bus = 0x0B + 8 * (index % 28);
  gpu.pci_device = 0;
  gpu.minor = index;
  const unsigned node = of > 4 ? index % 8 / 4 : 0;
  gpu.numa_node = static_cast<std::int32_t>(node);
  std::memset(gpu.cpu_set, 0, sizeof gpu.cpu_set);
  for (const unsigned base : {0U, 64U})  // 32 cores a node, and their second threads
    for (unsigned cpu = base + node * 32; cpu < base + node * 32 + 32; ++cpu) gpu.cpu_set[cpu / 64] |= 1ULL << cpu % 64;
}

bool cut(Gpu& gpu, unsigned index, const std::vector<std::string>& profiles, std::string_view host) {
  if (gpu.mig_capable == 0 || profiles.size() > kMaxMig) return false;
  gpu.mig_enabled = 1;
  gpu.mig_count = 0;
  unsigned compute = 0;
  unsigned memory = 0;
  for (const std::string& profile : profiles) {
    unsigned slices = 0;
    unsigned gigabytes = 0;
    char end = 0;
    if (std::sscanf(profile.c_str(), "%ug.%ug%c", &slices, &gigabytes, &end) != 3 || end != 'b') return false;
    if (slices == 0 || slices > 7 || slices == 5 || slices == 6 || gigabytes == 0) return false;
    const std::uint64_t slice_bytes = gpu.memory_total / 8;
    const auto wanted =
        static_cast<unsigned>((std::uint64_t{gigabytes} * 1000000000ULL + slice_bytes / 2) / slice_bytes);
    const unsigned memory_slices = std::clamp(wanted, 1U, 8U);
    if (compute + slices > 7 || memory + memory_slices > 8) return false;
    MigDevice& device = gpu.mig[gpu.mig_count];
    device = MigDevice{};
    put_uuid(device.uuid, "MIG", 0x6d69670000ULL + std::uint64_t{index} * kMaxMig + gpu.mig_count + seed_of(host));
    copy_text(device.profile, profile);
    device.gpu_instance = gpu.mig_count + (slices == 7 ? 0 : 7 - slices + 1);
    device.compute_instance = 0;
    device.slices = slices;
    device.memory_slices = memory_slices;
    device.placement = memory;
    device.multiprocessors = gpu.multiprocessors * slices / 8;
    device.memory_total = slice_bytes * memory_slices;
    device.memory_reserved = 13 * kMiB;
    compute += slices;
    memory += memory_slices;
    ++gpu.mig_count;
  }
  // Instance numbers must be different, whatever was asked for.
  for (unsigned i = 0; i < gpu.mig_count; ++i) gpu.mig[i].gpu_instance = gpu.mig[0].slices == 7 ? 0 : i + 1;
  return true;
}

void wire(std::vector<Gpu*> gpus) {
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    Gpu& gpu = *gpus[i];
    std::memset(gpu.link, 0, sizeof gpu.link);
    const bool switched = gpu.link_count > 4 && gpus.size() > 1;
    const std::size_t partner = i ^ 1U;
    for (unsigned link = 0; link < gpu.link_count; ++link) {
      if (switched)
        gpu.link[link] = kLinkSwitch;
      else if (gpu.link_count <= 4 && partner < gpus.size() && gpus[partner]->link_count == gpu.link_count)
        gpu.link[link] = static_cast<std::uint8_t>(partner + 1);
    }
  }
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
  const auto place_next = [&](Gpu& gpu) {
    gpu.kfd_node = node;
    node += kfd_places(gpu);
  };
  std::size_t group = 0;
  for (; group + kKfdOrder.size() <= in_kfd.size(); group += kKfdOrder.size())
    for (const unsigned place : kKfdOrder) place_next(*in_kfd[group + place]);
  for (std::size_t i = in_kfd.size(); i-- > group;) place_next(*in_kfd[i]);
}

}  // namespace lull::sim
