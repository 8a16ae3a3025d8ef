#pragma once
// A length of time that changes with the sampling interval of a trace: the interval itself, or what is a gap between
// samples.

#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"

namespace lull::trace {

struct Paced {
  struct Change {
    Instant from;  // the first interval of the new kind begins here
    std::int64_t value;
  };
  std::int64_t first = 0;            // ns
  std::vector<Change> changes = {};  // in order of time; mostly none

  // What holds for the interval that ends at a sample.
  std::int64_t before(Instant sample) const { return changes.empty() ? first : find(sample); }
  std::int64_t longest() const;
  // How many of these samples, from one on, have the same.
  std::size_t same_for(std::span<const Instant> at, std::size_t from) const;

 private:
  std::int64_t find(Instant sample) const;
};

}  // namespace lull::trace
