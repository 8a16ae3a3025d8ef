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

enum class TimeKind : std::uint8_t { calendar, seconds, milliseconds, microseconds, nanoseconds };

// How a numeric time was most likely meant. Numbers below 1e11 are seconds (until
// the year 5138), then milliseconds, microseconds, nanoseconds.
TimeKind kind_by_magnitude(double number);
std::optional<TimeKind> time_unit(std::string_view unit);  // "s", "ms", "us", "ns"

// A time cell as a whole; nothing if it is none. The slow, obvious way.
std::optional<std::int64_t> parse_time(std::string_view cell, TimeKind kind);
bool looks_like_calendar(std::string_view cell);
bool has_zone(std::string_view calendar);

// Nanoseconds since 1970 as RFC 3339 with milliseconds (or as many digits as it takes).
std::string format_time(std::int64_t ns, bool zone = true);

// Reads time cells in a row of rows, where one is mostly like the one before.
class TimeReader {
 public:
  explicit TimeReader(TimeKind kind) : kind_(kind) {}

  // Reads the cell at `p` (which ends before a newline at the latest); returns
  // what follows it, or nullptr where the slow way had better look.
  const char* read(const char* p, std::int64_t& ns);

 private:
  const char* read_calendar(const char* p, std::int64_t& ns);

  TimeKind kind_;
  char minute_[16] = {};        // "2024-03-15T11:04" of the last cell
  std::int64_t minute_ns_ = 0;  // and what it is worth
};

}  // namespace lull::trace
