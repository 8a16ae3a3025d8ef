#pragma once
// How the GPUs are joined, as the driver tells it: NVLinks (direct, or through switches) and what lies between them on
// PCIe. Asked for only where somebody wants GPUs that are close to each other.

#include <vector>

#include "gpu/topology.h"
#include "sense/nvml/library.h"

namespace lull {

// By the order of the handles; null: a GPU that cannot be read. What the driver does not tell is unknown.
Topology read_nvml_topology(const NvmlCalls& calls, const std::vector<nvml::Device>& handles);

}  // namespace lull
