#pragma once
// GPUs for tests: "GPU-0", "GPU-1", … by index.

#include <memory>
#include <string>

#include "gpu/snapshot.h"

namespace lull {

inline std::shared_ptr<Inventory> gpus_for_test(unsigned count) {
  auto inventory = std::make_shared<Inventory>();
  for (unsigned i = 0; i < count; ++i) {
    Device device;
    device.index = i;
    device.minor = i;
    device.uuid = "GPU-" + std::to_string(i);
    inventory->devices.push_back(device);
  }
  return inventory;
}

}  // namespace lull
