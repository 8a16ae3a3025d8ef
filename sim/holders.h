#pragma once
// Who holds a simulated GPU: processes that have it open through the library, loads,
// and whoever has its device file open. A card can be reset only when nobody does.

#include <cstdint>
#include <string>
#include <vector>

#include "sim/mapping.h"

namespace lull::sim {

struct Holder {
  std::uint32_t pid = 0;
  std::string name;  // /proc/PID/comm; empty: not to be seen from here
};

// In the order of their pids, each once.
std::vector<Holder> holders_of(Mapping& mapping, const std::string& folder, unsigned gpu);

}  // namespace lull::sim
