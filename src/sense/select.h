#pragma once
// What a person writes after --gpus: which devices of the inventory are meant.
// Unlike CUDA_VISIBLE_DEVICES this is strict: whatever is not understood is an
// error in one line, since a typo must not silently watch other GPUs.

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/snapshot.h"

namespace lull {

// "0,2", "0-3", "GPU-8932f937" (a UUID or its beginning), "3:1" (second MIG device of GPU 3),
// "MIG-…", "00000000:3B:00.0" (PCI), "all". Positions in Inventory::devices in the order
// given; a device named twice is there once.
Result<std::vector<std::size_t>> select_devices(std::string_view spec, const Inventory& inventory);

// The indices of the GPUs that it names where it does so by numbers alone, which is known before anybody is asked.
// Nothing: it names some in another way, or cannot be understood. Numbers beyond `most` are no GPU's.
std::optional<std::vector<unsigned>> named_by_number(std::string_view spec, unsigned most);

}  // namespace lull
