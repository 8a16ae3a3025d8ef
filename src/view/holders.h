#pragma once
// Who is on a GPU, as far as it may be shown: a number that the driver gave is joined
// with a process of ours only where it surely names one, and a server that works
// for others is not somebody who holds the GPU.

#include <vector>

#include "gpu/snapshot.h"

namespace lull {

// Null: it cannot be seen from here.
inline const ProcessInfo* known_process(const Tenant& tenant, const Snapshot& snapshot) {
  const auto found = snapshot.processes.find(tenant.pid);
  return tenant.here && found != snapshot.processes.end() ? &found->second : nullptr;
}

// The tenants that count: an MPS server does so through its clients.
inline std::vector<Tenant> holders(const Reading& reading) {
  std::vector<Tenant> result = reading.tenants.value_or(std::vector<Tenant>{});
  std::erase_if(result, [](const Tenant& tenant) { return tenant.mps_server; });
  return result;
}

}  // namespace lull
