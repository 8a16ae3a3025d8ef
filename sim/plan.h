#pragma once
// From a scenario to the state that clients map: places the GPUs in the machine,
// wires them, and turns steps and ramps into keyframes.

#include <vector>

#include "base/result.h"
#include "sim/scenario.h"
#include "sim/writer.h"

namespace lull::sim {

Result<Plan> make_plan(const Scenario& scenario);

// The keyframes of one value of a GPU; `points` are those of that value, in the order of time.
std::vector<Keyframe> make_keyframes(const std::vector<Point>& points, double resting);

// What a value is on a card at rest, where a ramp without a value before it starts from.
double resting_value(const Gpu& gpu, Metric metric);

// The phases as the steps of a load; the end of the last one, or kForever.
struct LoadSteps {
  std::vector<Step> steps;
  std::int64_t end_ns = kForever;
};
LoadSteps make_steps(const std::vector<PhaseSpec>& phases, std::uint64_t default_memory);

}  // namespace lull::sim
