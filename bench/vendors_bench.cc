// What a sample of AMD's GPUs costs beside reading the same files, and whether any reading calls a card idle that
// works. Prints one line a figure, name and number, for figure_vendors.py:
//
//   vendors_bench sample          a sample of 8 MI300X, and the same files in a bare loop, in turns
//   vendors_bench quirks CASES [SEED]   random cases with the drivers' faults (sense/quirks_test.h)
//   vendors_bench tree DIR        writes the files of 8 MI300X that nobody has open to DIR/sys
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <vector>

#include "sense/quirks_test.h"

namespace lull {
namespace {

constexpr unsigned kCards = 8;

// As amdgpu shows an MI300X in SPX, with the platform cards beside it, and KFD's nodes in an order of their own.
std::vector<std::string> make_machine(const CardTree& cards) {
  std::vector<std::string> devices;
  cards.tree.write("sys/module/amdgpu/refcnt", "0\n");
  cards.tree.write("sys/class/kfd/kfd/topology/nodes/0/gpu_id", "0\n");
  cards.tree.write("sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 96\nsimd_count 0\n");
  std::filesystem::create_directories(cards.tree.at("sys/class/kfd/kfd/proc"));
  for (unsigned i = 0; i < kCards; ++i) {
    const unsigned bus = 0x05 + 0x20 * i;
    char address[16];
    std::snprintf(address, sizeof address, "0000:%02x:00.0", bus);
    const std::string device = cards.add_navi(i * 8, address);
    const std::string hwmon = device + "/hwmon/hwmon" + std::to_string(i * 8);
    cards.tree.write(device + "/product_name", "AMD Instinct MI300X OAM\n");
    cards.write(device, "class", 0, "0x120000");
    cards.write(device, "unique_id", 0, "5d1f0000000000" + std::string(address + 5, 2));
    cards.write(device, "mem_info_vram_total", 206141652992);
    cards.write(device, "mem_info_vram_used", 296'000'000);
    cards.remove(hwmon + "/temp1_input");
    cards.remove(hwmon + "/pwm1");
    cards.remove(hwmon + "/power1_average");
    cards.write(hwmon, "power1_input", 141'000'000);
    cards.write(hwmon, "power1_cap", 750'000'000);
    std::string metrics(1664, '\0');  // 1.6, which is not read again
    metrics.replace(0, 4, std::string_view("\x80\x06\x01\x06", 4));
    cards.tree.write(device + "/gpu_metrics", metrics);
    const std::string node = "sys/class/kfd/kfd/topology/nodes/" + std::to_string(kCards - i);
    cards.tree.write(node + "/gpu_id", std::to_string(20000 + bus) + "\n");
    cards.tree.write(node + "/properties",
                     "cpu_cores_count 0\nsimd_count 1216\ngfx_target_version 90402\nlocation_id " +
                         std::to_string(bus << 8) + "\ndomain 0\ndrm_render_minor " + std::to_string(128 + i * 8) +
                         "\nunique_id " + std::to_string(0x5d1f000000000000ULL + bus) + "\n");
    for (unsigned part = 1; part < 8; ++part) {
      const std::string name = "amdgpu_xcp_" + std::to_string(i * 7 + part - 1);
      const std::string card = "card" + std::to_string(i * 8 + part);
      cards.tree.write("sys/devices/platform/" + name + "/drm/" + card + "/dev", "226:1\n");
      cards.tree.link("sys/devices/platform/" + name + "/drm/" + card + "/device", "../../../" + name);
      cards.tree.link("sys/class/drm/" + card, "../../devices/platform/" + name + "/drm/" + card);
    }
    devices.push_back(device);
  }
  return devices;
}

// What is there of a sample, by name. A file that is missing costs a try.
std::size_t read_all(const std::vector<std::string>& files) {
  std::size_t sum = 0;
  for (const std::string& file : files) {
    char text[4096];
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    if (const ssize_t got = ::read(fd, text, sizeof text); got > 0) sum += static_cast<std::size_t>(got);
    ::close(fd);
  }
  return sum;
}

double seconds_since(Instant began) { return std::chrono::duration<double>(SystemClock().now() - began).count(); }

double median(std::vector<double> all) {
  std::ranges::nth_element(all, all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2));
  return all[all.size() / 2];
}

void compare() {
  CardTree cards;
  std::vector<std::string> files;
  for (const std::string& device : make_machine(cards)) {
    const std::string folder = std::filesystem::canonical(cards.tree.at(device));
    const std::string hwmon = std::filesystem::directory_iterator(folder + "/hwmon")->path().string();
    for (const char* name :
         {"power/runtime_status", "gpu_busy_percent", "mem_busy_percent", "mem_info_vram_used", "mem_info_vram_total"})
      files.push_back(folder + "/" + name);
    for (const char* name : {"power1_average", "power1_input", "power1_cap", "temp1_input", "temp2_input",
                             "freq1_input", "freq2_input", "pwm1"})
      files.push_back(hwmon + "/" + name);
  }
  const SystemClock clock;
  const auto source = make_amd_source(cards.root(), clock);
  (void)source->open();
  std::vector<Answer> answers(kCards);
  const Needs needs{.processes = false};
  for (unsigned i = 0; i < kCards; ++i) (void)source->attach(i, clock.now());
  std::vector<double> ratios;
  std::vector<double> ours;
  std::vector<double> bare;
  std::size_t sum = 0;
  for (int turn = 0; turn < 300; ++turn) {
    constexpr int kTimes = 5;
    Instant began = clock.now();
    for (int i = 0; i < kTimes; ++i) sum += read_all(files);
    bare.push_back(seconds_since(began) / kTimes);
    began = clock.now();
    for (int i = 0; i < kTimes; ++i)
      for (unsigned gpu = 0; gpu < kCards; ++gpu) source->sample(gpu, needs, clock.now(), answers[gpu]);
    ours.push_back(seconds_since(began) / kTimes);
    ratios.push_back(ours.back() / bare.back());
  }
  if (sum == 0 || answers[7].gpu[Metric::power] != 141) std::exit(1);
  std::printf("ratio %.3f\nsample_us %.1f\nbare_us %.1f\n", median(ratios), median(ours) * 1e6, median(bare) * 1e6);
}

}  // namespace
}  // namespace lull

int main(int argc, char** argv) {
  using namespace lull;
  const std::string_view what = argc > 1 ? argv[1] : "";
  if (what == "sample") {
    compare();
  } else if (what == "quirks" && argc > 2) {
    const unsigned seed = argc > 3 ? static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10)) : std::random_device()();
    const QuirkCounts counts = QuirkCases(seed).run(static_cast<unsigned>(std::atoi(argv[2])));
    std::printf("seed %u\ncases %u\nidle %u\nbusy %u\nunknown %u\nfalse_idle %u\nfalse_unused %u\n", seed, counts.cases,
                counts.known_idle, counts.known_busy, counts.unknown, counts.false_idle, counts.false_unused);
  } else if (what == "tree" && argc > 2) {
    CardTree cards;
    make_machine(cards);
    std::filesystem::copy(cards.tree.at("sys"), std::string(argv[2]) + "/sys",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::copy_symlinks);
  } else {
    return 2;
  }
  return 0;
}
