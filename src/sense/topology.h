#pragma once
// Reads how the GPUs are joined: NVLinks (direct, or through switches) and what
// lies between them on PCIe. It is asked for only when somebody wants GPUs that
// are close to each other; the calls are made on a thread that is left behind
// should the driver hang.

#include "base/clock.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "gpu/topology.h"

namespace lull {

// By position in the inventory. What the driver does not tell is unknown, which is no
// error; that it does not answer at all is one.
Result<Topology> read_topology(const Inventory& inventory, Duration deadline = std::chrono::seconds(2));

}  // namespace lull
