#pragma once
// Hours of the day in which something may be done: `20-08`, `12:30-13:30,20-08`. By the local clock; a span may go over
// midnight.

#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

class Hours {
 public:
  Hours() = default;  // always
  static Result<Hours> parse(std::string_view text);

  bool always() const { return spans_.empty(); }
  bool contain(WallTime when) const;  // by the zone of this process
  bool contain_minute(unsigned minute_of_day) const;
  Duration until(WallTime when) const;  // from then to the first moment that is in it; 0: it is, or there is none
  bool operator==(const Hours&) const = default;

 private:
  struct Span {
    unsigned from = 0;  // minutes since midnight
    unsigned to = 0;    // the first that is not in it
    bool operator==(const Span&) const = default;
  };
  std::vector<Span> spans_;
};

}  // namespace lull
