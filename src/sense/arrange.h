#pragma once
// Puts the GPUs that were found into an Inventory. Whoever watches position 1 must never silently watch another card,
// so GPUs keep their place by UUID (by PCI address or index where none was read or several have it), one that vanished
// stays as `lost`, new ones come last. MIG devices follow their GPU.

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

// How the devices of the rows are joined, by how the found GPUs are.
Topology topology_of(std::span<const Row> rows, const Topology& found);

Arrangement arrange(std::span<const Device> before, std::span<const FoundGpu> found);

}  // namespace lull
