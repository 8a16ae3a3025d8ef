#include "sim/timeline.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cmath>
#include <vector>

namespace lull::sim {
namespace {

constexpr std::int64_t kMs = 1'000'000;

std::vector<Keyframe> frames_of(std::initializer_list<Keyframe> list) { return list; }

Timeline timeline_over(std::vector<Keyframe>& frames, std::int64_t repeat_ns = 0) {
  Timeline timeline{0, static_cast<std::uint32_t>(frames.size()), repeat_ns, 0, 0};
  add_up(frames.data(), timeline);
  return timeline;
}

TEST(Timeline, StepsHoldAndRampsMove) {
  auto frames = frames_of(
      {{.at_ns = 0, .value = 10}, {.at_ns = 100 * kMs, .value = 20, .ramp = 1}, {.at_ns = 200 * kMs, .value = 60}});
  const Timeline timeline = timeline_over(frames);
  EXPECT_EQ(value_at(frames.data(), timeline, 99 * kMs), 10);
  EXPECT_EQ(value_at(frames.data(), timeline, 100 * kMs), 20);
  EXPECT_EQ(value_at(frames.data(), timeline, 150 * kMs), 40);
  EXPECT_EQ(value_at(frames.data(), timeline, 200 * kMs), 60);
  EXPECT_EQ(value_at(frames.data(), timeline, 900 * kMs), 60);
}

TEST(Timeline, NoneAtAllDerives) { EXPECT_TRUE(std::isnan(value_at(nullptr, Timeline{}, 5))); }

TEST(Timeline, TheFirstValueHoldsBeforeIt) {
  auto frames = frames_of({{.at_ns = 100 * kMs, .value = 7}, {.at_ns = 200 * kMs, .value = 0}});
  const Timeline timeline = timeline_over(frames);
  EXPECT_EQ(value_at(frames.data(), timeline, 0), 7);
  EXPECT_DOUBLE_EQ(integral_of(frames.data(), timeline, 0, 300 * kMs, {}), 7 * 0.2);
  EXPECT_DOUBLE_EQ(busy_seconds(frames.data(), timeline, 0, 300 * kMs), 0.2);
}

TEST(Timeline, RepeatsForEver) {
  auto frames = frames_of({{.at_ns = 0, .value = 100}, {.at_ns = 40 * kMs, .value = 0}});
  const Timeline timeline = timeline_over(frames, 100 * kMs);
  EXPECT_EQ(value_at(frames.data(), timeline, 1'000'030 * kMs), 100);
  EXPECT_EQ(value_at(frames.data(), timeline, 1'000'050 * kMs), 0);
  EXPECT_NEAR(integral_of(frames.data(), timeline, 0, 10'000 * kMs, {}), 400, 1e-9);
  EXPECT_NEAR(busy_seconds(frames.data(), timeline, 20 * kMs, 120 * kMs), 0.04, 1e-12);
}

TEST(Timeline, GapsAreMarkedAndCountAsNothing) {
  auto frames =
      frames_of({{.at_ns = 0, .value = 50}, {.at_ns = 100 * kMs, .value = kDerive}, {.at_ns = 200 * kMs, .value = 50}});
  const Timeline timeline = timeline_over(frames);
  EXPECT_EQ(timeline.gaps, 1U);
  EXPECT_NEAR(integral_of(frames.data(), timeline, 0, 300 * kMs, {}), 10, 1e-12);
}

// The slow, obvious twin: the sum over cells of a millisecond, within which everything is a straight line.
double cell_sum(const std::vector<Keyframe>& frames, const Timeline& timeline, std::int64_t from, std::int64_t to,
                Shape shape) {
  double sum = 0;
  for (std::int64_t at = from; at < to; at += kMs) {
    const double value = value_at(frames.data(), timeline, at + kMs / 2) * shape.scale + shape.add;
    sum += (shape.add != 0 ? std::min(value, shape.cap) : value) * 1e-3;
  }
  return sum;
}

TEST(Timeline, IntegralsAreWhatTheValuesAddUpTo) {
  EXPECT_TRUE(rc::check([] {
    const auto count = *rc::gen::inRange(1, 12);
    std::vector<Keyframe> frames;
    std::int64_t at = *rc::gen::inRange(0, 50);
    for (int i = 0; i < count; ++i) {
      frames.push_back({.at_ns = at * kMs,
                        .value = static_cast<double>(*rc::gen::inRange(0, 101)),
                        .ramp = *rc::gen::element(0U, 1U)});
      at += *rc::gen::inRange(0, 120);  // two at one moment: a jump
    }
    const std::int64_t repeat = *rc::gen::element<std::int64_t>(0, 0, (at + 37) * kMs, (at / 2 + 1) * kMs);
    const Timeline timeline = timeline_over(frames, repeat);
    const std::int64_t from = *rc::gen::inRange(0, 1000) * kMs;
    const std::int64_t to = from + *rc::gen::inRange(1, 1500) * kMs;
    const double add = *rc::gen::element(0.0, 5.0, 50.0);
    const Shape shape{.scale = *rc::gen::element(1.0, 0.4), .add = add, .cap = 100};
    const double slow = cell_sum(frames, timeline, from, to, shape);
    const double fast = integral_of(frames.data(), timeline, from, to, shape);
    RC_ASSERT(std::abs(fast - slow) <= 1e-9 + (add != 0 ? 2e-3 : 1e-9) * (1 + slow));
    const std::int64_t middle = from + (to - from) / 3;
    const double parts = integral_of(frames.data(), timeline, from, middle, shape) +
                         integral_of(frames.data(), timeline, middle, to, shape);
    RC_ASSERT(std::abs(fast - parts) <= 1e-9 * (1 + fast));
  }));
}

}  // namespace
}  // namespace lull::sim
