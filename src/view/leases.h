#pragma once
// The lease folder for people and programs: who holds which GPU, and who waits.

#include <string>
#include <vector>

#include "base/clock.h"
#include "lease/folder.h"
#include "view/columns.h"

namespace lull {

// By GPU, as people count them: 2 before 10, 3:1 after 3:0.
void sort_by_gpu(std::vector<LeaseInfo>& leases);

std::vector<std::string> leases_table(const FolderState& state, WallTime now, const Screen& screen);
std::string leases_json(const FolderState& state, const std::string& path);

}  // namespace lull
