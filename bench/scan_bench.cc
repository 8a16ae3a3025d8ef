// What one look at everybody's open files costs, for figure_fill.py: prints names and milliseconds.
//
//   scan_bench N        the first look, and the median of N more by the same scanner, as lull fill looks again and
//   again
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "sense/openers.h"

int main(int argc, char** argv) {
  using namespace lull;
  const SystemClock clock;
  Inventory inventory;
  for (unsigned i = 0; i < 8; ++i) {
    Device device;
    device.index = i;
    device.minor = i;
    inventory.devices.push_back(device);
  }
  std::vector<double> all;
  OpenerScan scan(Root::machine(), {}, clock);
  const auto look = [&] {
    const Instant began = clock.now();
    if (scan.look(inventory, std::chrono::seconds(60)).holders.size() != 8) std::exit(1);
    return std::chrono::duration<double, std::milli>(clock.now() - began).count();
  };
  std::printf("first_scan_ms %.3f\n", look());
  look();  // who has been looked at twice without running in between is not gone through again
  const int looks = argc > 1 ? std::atoi(argv[1]) : 20;
  for (int i = 0; i < std::max(looks, 1); ++i) all.push_back(look());
  std::ranges::sort(all);
  std::printf("scan_ms %.3f\n", all[all.size() / 2]);
}
