#pragma once
// A Block is up to 1024 consecutive samples of one GPU, one column per metric.
// It is the unit that deciding agrees on: live operation feeds blocks of one,
// replay feeds full ones, Python sees one as arrays. For any way of cutting a
// series into blocks the answers are equal; a property test keeps that so.
//
// Columns are float: a rule compares, it does not account, and half the width is
// twice the speed. An empty column means that the metric is unknown throughout.

#include <array>
#include <cstddef>
#include <span>

#include "base/clock.h"
#include "gpu/metric.h"

namespace lull {

inline constexpr std::size_t kBlockSamples = 1024;

struct Block {
  std::span<const Instant> at;
  std::array<std::span<const float>, kMetrics> value;
  std::span<const float> holder = {};  // who has the GPU, as a number (trace/holders.h); empty: not told

  std::size_t size() const { return at.size(); }
  std::span<const float> operator[](Metric metric) const { return value[index_of(metric)]; }
  // Some of its samples, as a block of their own.
  Block part(std::size_t from, std::size_t count) const {
    Block cut{at.subspan(from, count), {}, holder.empty() ? holder : holder.subspan(from, count)};
    for (std::size_t i = 0; i < kMetrics; ++i)
      if (!value[i].empty()) cut.value[i] = value[i].subspan(from, count);
    return cut;
  }
};

}  // namespace lull
