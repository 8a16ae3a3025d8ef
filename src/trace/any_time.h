#pragma once
// Times as tools and people write them: RFC 3339 and nvidia-smi's, `date`, `ts`, ctime,
// dmon's 20240315 11:04:29, 15.03.2024, a time of day alone. Slow and obvious; what is
// read by the million goes through TimeReader.

#include <cstdint>
#include <optional>
#include <string_view>

namespace lull::trace {

struct AnyTime {
  std::int64_t ns = 0;  // since 1970; of a time of day: since midnight; without a year: since the start of a leap year
  bool dated = true;    // false: a time of day alone
  bool has_year = true;
  std::optional<int> zone_minutes;  // east of Greenwich; nothing: the reading of some wall clock
};

enum class DayOrder : std::uint8_t { unknown, day_first, month_first };  // of 03/04/2024

// Nothing where the text is no time, or where its day and month could be swapped and nobody said how.
std::optional<AnyTime> read_any_time(std::string_view text, DayOrder order = DayOrder::unknown);
// The time at the start of a line, and what follows it: "Nov 16 21:14:36 GPU 0 …".
std::optional<AnyTime> take_any_time(std::string_view& line);
// Which of 03/04 is the day, if this text shows it.
DayOrder day_order_of(std::string_view text);

}  // namespace lull::trace
