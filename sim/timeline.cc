#include "sim/timeline.h"

#include <algorithm>
#include <cmath>

namespace lull::sim {
namespace {

double known(double value) { return std::isfinite(value) ? value : 0; }

struct Sums {
  double integral = 0;
  double busy = 0;
};

// The straight line that keyframe i begins, in the timeline's own time.
struct Line {
  std::int64_t start_ns;
  std::int64_t end_ns;
  double first;
  double last;
};

Line line(const Keyframe* frames, const Timeline& timeline, std::uint32_t i) {
  const Keyframe* at = frames + timeline.first;
  const bool final = i + 1 == timeline.count;
  const double first = at[i].value;
  const bool ramps = !final && at[i].ramp != 0 && std::isfinite(first) && std::isfinite(at[i + 1].value);
  return {at[i].at_ns, final ? kForever : at[i + 1].at_ns, first, ramps ? at[i + 1].value : first};
}

double along(const Line& of, std::int64_t at_ns) {
  if (of.first == of.last || of.end_ns == of.start_ns || of.end_ns == kForever) return of.first;
  return of.first + (of.last - of.first) *
                        (static_cast<double>(at_ns - of.start_ns) / static_cast<double>(of.end_ns - of.start_ns));
}

Sums sums_of(const Line& of, std::int64_t from, std::int64_t to) {
  const double a = known(along(of, from));
  const double b = of.first == of.last
                       ? a
                       : known(of.first + (of.last - of.first) * (static_cast<double>(to - of.start_ns) /
                                                                  static_cast<double>(of.end_ns - of.start_ns)));
  return {(a + b) / 2 * to_seconds(to - from), a > 0 || b > 0 ? to_seconds(to - from) : 0};
}

// The keyframe whose line holds at this own time (the first also before it).
std::uint32_t find(const Keyframe* frames, const Timeline& timeline, std::int64_t own_ns) {
  const Keyframe* begin = frames + timeline.first;
  const Keyframe* after = std::upper_bound(begin, begin + timeline.count, own_ns,
                                           [](std::int64_t t, const Keyframe& frame) { return t < frame.at_ns; });
  return after == begin ? 0 : static_cast<std::uint32_t>(after - begin - 1);
}

// Sums from own time 0.
Sums own_sums(const Keyframe* frames, const Timeline& timeline, std::int64_t own_ns) {
  const Keyframe* begin = frames + timeline.first;
  const double head = known(begin->value);  // holds before the first keyframe too
  const auto until = [&](std::int64_t t) { return Sums{head * to_seconds(t), head > 0 ? to_seconds(t) : 0}; };
  if (own_ns <= begin->at_ns) return until(own_ns);
  const std::uint32_t i = find(frames, timeline, own_ns);
  const Sums before = until(begin->at_ns);
  const Sums here = sums_of(line(frames, timeline, i), begin[i].at_ns, own_ns);
  return {before.integral + begin[i].integral + here.integral, before.busy + begin[i].busy + here.busy};
}

Sums sums_to(const Keyframe* frames, const Timeline& timeline, std::int64_t at_ns) {
  if (timeline.count == 0) return {};
  if (timeline.repeat_ns <= 0) return own_sums(frames, timeline, at_ns);
  const std::int64_t whole_rounds = at_ns / timeline.repeat_ns;
  const auto rounds = static_cast<double>(whole_rounds);
  const Sums round = own_sums(frames, timeline, timeline.repeat_ns);
  const Sums rest = own_sums(frames, timeline, at_ns % timeline.repeat_ns);
  return {rounds * round.integral + rest.integral, rounds * round.busy + rest.busy};
}

double capped_area(double a, double b, double cap, double span) {
  if (a <= cap && b <= cap) return (a + b) / 2 * span;
  if (a >= cap && b >= cap) return cap * span;
  const double low = std::min(a, b);
  const double rising = (cap - low) / (std::max(a, b) - low);  // share of the span below the cap
  return ((low + cap) / 2 * rising + cap * (1 - rising)) * span;
}

}  // namespace

Segment segment_at(const Keyframe* frames, const Timeline& timeline, std::int64_t at_ns) {
  if (timeline.count == 0) return {};
  const std::int64_t shift = timeline.repeat_ns > 0 ? at_ns / timeline.repeat_ns * timeline.repeat_ns : 0;
  const std::int64_t own = at_ns - shift;
  const Line here = line(frames, timeline, find(frames, timeline, own));
  Segment segment{here.start_ns + shift, here.end_ns == kForever ? kForever : here.end_ns + shift, here.first,
                  here.last};
  if (own < here.start_ns) {
    segment = {shift, here.start_ns + shift, here.first, here.first};
  }
  if (timeline.repeat_ns > 0 && segment.end_ns > shift + timeline.repeat_ns) {
    const std::int64_t end = shift + timeline.repeat_ns;
    segment.last = along(here, end - shift);
    segment.end_ns = end;
  }
  return segment;
}

double value_at(const Keyframe* frames, const Timeline& timeline, std::int64_t at_ns) {
  if (timeline.count == 0) return kDerive;
  const Segment here = segment_at(frames, timeline, at_ns);
  return along({here.start_ns, here.end_ns, here.first, here.last}, at_ns);
}

double integral_of(const Keyframe* frames, const Timeline& timeline, std::int64_t from_ns, std::int64_t to_ns,
                   Shape shape) {
  if (timeline.count == 0) return std::min(shape.add, shape.cap) * to_seconds(to_ns - from_ns);
  if (shape.add == 0)
    return shape.scale * (sums_to(frames, timeline, to_ns).integral - sums_to(frames, timeline, from_ns).integral);
  double total = 0;
  for (std::int64_t at = from_ns; at < to_ns;) {
    const Segment here = segment_at(frames, timeline, at);
    const std::int64_t end = std::min(to_ns, here.end_ns);
    const Line as_line{here.start_ns, here.end_ns, here.first, here.last};
    const double a = known(along(as_line, at)) * shape.scale + shape.add;
    const double b = known(end == here.end_ns ? here.last : along(as_line, end)) * shape.scale + shape.add;
    total += capped_area(a, b, shape.cap, to_seconds(end - at));
    at = end;
  }
  return total;
}

double busy_seconds(const Keyframe* frames, const Timeline& timeline, std::int64_t from_ns, std::int64_t to_ns) {
  return sums_to(frames, timeline, to_ns).busy - sums_to(frames, timeline, from_ns).busy;
}

void add_up(Keyframe* frames, Timeline& timeline) {
  Sums sums;
  timeline.gaps = 0;
  for (std::uint32_t i = 0; i < timeline.count; ++i) {
    Keyframe& frame = frames[timeline.first + i];
    frame.integral = sums.integral;
    frame.busy = sums.busy;
    if (!std::isfinite(frame.value)) timeline.gaps = 1;
    if (i + 1 == timeline.count) break;
    const Line here = line(frames, timeline, i);
    const Sums more = sums_of(here, here.start_ns, here.end_ns);
    sums = {sums.integral + more.integral, sums.busy + more.busy};
  }
}

}  // namespace lull::sim
