#pragma once
// Which part of a history is read: --last 30d, --from 2026-11-01, --to 2026-11-17T12:00.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

struct TimeRange {
  // One moment in two ways, each in ns since 1970.
  struct Bound {
    std::int64_t moment = 0;
    std::int64_t wall = 0;  // what a local clock shows then: for files whose times name no zone
  };
  std::optional<Bound> from;  // the first that counts
  std::optional<Bound> to;    // the first that does not

  bool all() const { return !from && !to; }
  // Of times that name a moment, or of readings of a wall clock.
  std::int64_t lowest(bool zoned) const;
  std::int64_t end(bool zoned) const;
};

// The values as they were written; empty: not given. Local time where no zone is written. A day alone means all of it,
// in `to` as well.
Result<TimeRange> time_range_option(std::string_view last, std::string_view from, std::string_view to, WallTime now);

std::string format_range(const TimeRange& range);  // "from 2026-11-01T00:00:00 to …", in local time

}  // namespace lull
