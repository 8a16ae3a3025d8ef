#pragma once
// Keyframed timelines: the value at a moment, and exact integrals over a stretch
// in O(log n) by the sums that each keyframe carries. Pure.

#include <cstdint>

#include "sim/state.h"

namespace lull::sim {

constexpr double to_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

// A stretch of a timeline over which the value is a straight line.
struct Segment {
  std::int64_t start_ns = 0;
  std::int64_t end_ns = kForever;
  double first = kDerive;  // value at its start
  double last = kDerive;   // value towards its end
};

Segment segment_at(const Keyframe* frames, const Timeline& timeline, std::int64_t at_ns);
double value_at(const Keyframe* frames, const Timeline& timeline, std::int64_t at_ns);  // kDerive: none

// The integral of min(cap, scale x value + add) in value x seconds; gaps count as 0. The cap only binds
// where something is added.
struct Shape {
  double scale = 1;
  double add = 0;
  double cap = 0;
};
double integral_of(const Keyframe* frames, const Timeline& timeline, std::int64_t from_ns, std::int64_t to_ns,
                   Shape shape);
// For how long the value was above 0.
double busy_seconds(const Keyframe* frames, const Timeline& timeline, std::int64_t from_ns, std::int64_t to_ns);

// Fills in the sums of each keyframe and Timeline::gaps.
void add_up(Keyframe* frames, Timeline& timeline);

}  // namespace lull::sim
