#pragma once
// Recorded readings as a timeline: a CSV whose header names its columns as lull's
// own traces do (time or time_seconds, gpu, util_percent, power_watts, …). Each
// row is a step at its time since the first row; an empty cell is a value that
// could not be read then, and is one that cannot be read in the simulation.

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/scenario.h"

namespace lull::sim {

// The steps of GPU `gpu` of the trace (by its gpu column; a trace without one is of GPU 0).
Result<std::vector<Point>> read_trace_csv(std::string_view text, std::string_view name, std::size_t gpu);

}  // namespace lull::sim
