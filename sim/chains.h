#pragma once
// Links the records of a Live slot to one another: the loads of each GPU, and the
// values set for each metric, newest first. For those who write a slot.

#include <algorithm>
#include <iterator>

#include "sim/state.h"

namespace lull::sim {

inline void chain_loads(Live& live) {
  std::fill(std::begin(live.first_load), std::end(live.first_load), kNone);
  for (std::uint32_t i = live.load_count; i-- > 0;) {
    Load& load = live.loads[i];
    load.next = live.first_load[load.gpu];
    live.first_load[load.gpu] = i;
  }
}

inline void chain_sets(Live& live) {
  for (auto& row : live.last_set) std::fill(std::begin(row), std::end(row), kNone);
  for (std::uint32_t i = 0; i < live.set_count; ++i) {
    Set& set = live.sets[i];
    set.previous = live.last_set[set.gpu][set.metric];
    live.last_set[set.gpu][set.metric] = i;
  }
}

}  // namespace lull::sim
