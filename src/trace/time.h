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

inline constexpr std::int64_t kSecond = 1'000'000'000;  // in nanoseconds

// words: any other form that read_any_time() knows; day_first, month_first: the same, of 03/04/2024.
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

// Times as tools and people write them: RFC 3339 and nvidia-smi's, `date`, `ts`, ctime,
// dmon's 20240315 11:04:29, 15.03.2024, a time of day alone. Slow and obvious; what is
// read by the million goes through TimeReader.
struct AnyTime {
  std::int64_t ns = 0;  // since 1970; of a time of day: since midnight; without a year: since the start of a leap year
  bool dated = true;    // false: a time of day alone
  bool has_year = true;
  std::optional<int> zone_minutes;  // east of Greenwich; nothing: the reading of some wall clock
};

enum class DayOrder : std::uint8_t { unknown, day_first, month_first };  // of 03/04/2024

// Nothing if the text is not a time, or if its day and month could be swapped and the order is not given.
std::optional<AnyTime> read_any_time(std::string_view text, DayOrder order = DayOrder::unknown);
// The time at the start of a line, and what follows it: "Nov 16 21:14:36 GPU 0 …".
std::optional<AnyTime> take_any_time(std::string_view& line, DayOrder order = DayOrder::unknown);
// Which of 03/04 is the day, if this text shows it.
DayOrder day_order_of(std::string_view text);
// Whether it is a time but for the order of its day and month: 03-11-2026 15:13.
bool is_unclear_day(std::string_view text);

}  // namespace lull::trace
