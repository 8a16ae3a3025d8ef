#pragma once
// The chance that a job which was ended would have worked again within so long, as
// Kaplan and Meier estimate it: a job of which the end of the trace cut off the sight
// counts for as long as it was seen, not as one that stayed idle. One that was
// released is known never to come back (Aalen and Johansen's estimate, which is
// Kaplan and Meier's where nothing is released). Times are whole seconds, rounded up,
// so that any number of jobs takes little memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace lull::replay {

enum class Leaving : std::uint8_t { came_back, released, cut_off };

class Survival {
 public:
  static constexpr Duration kLongest = std::chrono::hours(4);  // nobody asks beyond it

  void add(Duration after, Leaving how);
  // Nothing where no job was ended.
  std::optional<double> chance_within(Duration limit) const;

  Survival& operator+=(const Survival& more);
  std::uint64_t count() const { return count_; }

 private:
  struct Moment {
    std::uint32_t second = 0;
    std::uint32_t back = 0;
    std::uint32_t released = 0;
    std::uint32_t cut = 0;
  };
  void merge();  // moments of the same second become one, in order of time

  std::uint64_t count_ = 0;
  std::vector<Moment> moments_;  // within kLongest
  std::size_t merged_ = 0;       // the first so many are in order
};

}  // namespace lull::replay
