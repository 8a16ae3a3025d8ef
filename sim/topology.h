#pragma once
// The [topology] table of a scenario: which GPUs an NVLink joins, which sit
// behind one PCIe switch, which NUMA node each belongs to; or a preset that
// says all of it ("dgx", "bridges").

#include "base/result.h"
#include "sim/scenario.h"
#include "sim/scenario_read.h"

namespace lull::sim {

Result<> read_topology(const Reader& reader, const Node& table, Scenario& scenario);

}  // namespace lull::sim
