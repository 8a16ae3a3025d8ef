#pragma once
// Puts the GPUs that were found into an Inventory so that positions survive as
// much as they can: whoever watches position 1 must never silently watch another
// card because the driver was loaded anew. GPUs keep their place by UUID (by
// index where none was read), one that vanished stays as `lost`, new ones come
// last. MIG devices follow their GPU.

#include <cstddef>
#include <span>
#include <vector>

#include "gpu/snapshot.h"

namespace lull {

struct FoundGpu {
  const Device* gpu = nullptr;
  std::vector<const Device*> parts;
};

// Where the reading of a position comes from.
struct Row {
  static constexpr std::size_t kNobody = ~std::size_t{0};
  std::size_t gpu = kNobody;   // which of the found; kNobody: it vanished
  std::size_t part = kNobody;  // which of its MIG devices; kNobody: the GPU itself
};

struct Arrangement {
  std::vector<Device> devices;
  std::vector<Row> rows;  // one for each device
};

Arrangement arrange(std::span<const Device> before, std::span<const FoundGpu> found);

}  // namespace lull
