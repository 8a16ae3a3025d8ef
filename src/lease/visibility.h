#pragma once
// What makes a program see the GPUs that were picked and no others.

#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "lease/picker.h"

namespace lull {

// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, or what the maker of the GPUs uses instead.
std::vector<std::pair<std::string, std::string>> visibility(const Picked& picked, bool uuid, const Root& root);
// CUDA_VISIBLE_DEVICES: "0,3", or UUIDs where asked for or where there are MIG devices.
std::string visible_value(const Picked& picked, bool uuid);

}  // namespace lull
