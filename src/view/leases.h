#pragma once
// The lease folder for people and programs: who holds which GPU, and who waits.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/metric.h"
#include "lease/folder.h"
#include "view/columns.h"

namespace lull {

// By GPU, as people count them: 2 before 10, 3:1 after 3:0.
void sort_by_gpu(std::vector<LeaseInfo>& leases);

// What a leased GPU does now, as far as that was seen.
struct LeasedGpu {
  double util = kUnknown;
  std::optional<Duration> idle_for;
  bool idle_for_longer = false;  // it was so when we first looked: at least that long
};
using LeasedGpus = std::map<std::string, LeasedGpu>;  // by UUID

std::vector<std::string> leases_table(const FolderState& state, const LeasedGpus& gpus, WallTime now,
                                      const Screen& screen);
std::string leases_json(const FolderState& state, const LeasedGpus& gpus, const std::string& path);

}  // namespace lull
