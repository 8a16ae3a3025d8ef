#pragma once
// The times that traces carry: seconds, milliseconds, microseconds or nanoseconds
// as a number, RFC 3339 (2024-03-15T11:04:29.052Z), or nvidia-smi's own
// (2024/03/15 11:04:29.052). Inside they are nanoseconds since 1970, or since the
// start of a trace that counts from there. A calendar time without a zone is taken
// as it stands: replay looks at differences only.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lull::trace {

// words: any other form that any_time.h knows; day_first, month_first: the same, of 03/04/2024.
enum class TimeKind : std::uint8_t {
  calendar,
  seconds,
  milliseconds,
  microseconds,
  nanoseconds,
  words,
  day_first,
  month_first
};

// How a numeric time was most likely meant. Numbers below 1e11 are seconds (until
// the year 5138), then milliseconds, microseconds, nanoseconds.
TimeKind kind_by_magnitude(double number);
std::optional<TimeKind> time_unit(std::string_view unit);  // "s", "ms", "us", "ns"; "dmy", "mdy"

// A time cell as a whole; nothing if it is none. The slow, obvious way.
std::optional<std::int64_t> parse_time(std::string_view cell, TimeKind kind);
bool looks_like_calendar(std::string_view cell);
bool zone_mismatch(std::string_view calendar, bool zoned);  // it names its zone, and should not; or the reverse

// Nanoseconds since 1970 as RFC 3339 with milliseconds (or as many digits as it takes).
// `zone_minutes` east of Greenwich; without `zone` the time is that of some wall clock and says no zone.
std::string format_time(std::int64_t ns, bool zone = true, int zone_minutes = 0);

// Reads time cells in a row of rows, where one is mostly like the one before.
class TimeReader {
 public:
  // `zoned`: whether calendar times carry a zone. One that does not do as the others is left to the slow way.
  explicit TimeReader(TimeKind kind, bool zoned = false) : kind_(kind), zoned_(zoned) {}

  // Reads the cell at `p` (which ends before a newline at the latest); returns
  // what follows it, or nullptr where the slow way had better look.
  const char* read(const char* p, std::int64_t& ns);

 private:
  const char* read_calendar(const char* p, std::int64_t& ns);

  TimeKind kind_;
  bool zoned_;
  char minute_[16] = {};        // "2024-03-15T11:04" of the last cell
  std::int64_t minute_ns_ = 0;  // and what it is worth
};

}  // namespace lull::trace
