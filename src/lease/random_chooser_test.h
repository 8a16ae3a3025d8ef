#pragma once
// A chooser for tests of the queue that takes any of what is open.

#include <algorithm>
#include <random>
#include <span>
#include <vector>

namespace lull {

inline std::vector<std::size_t> some_of(std::span<const std::size_t> open, std::size_t want, std::mt19937& random) {
  std::vector<std::size_t> some(open.begin(), open.end());
  std::shuffle(some.begin(), some.end(), random);
  some.resize(want);
  return some;
}

}  // namespace lull
