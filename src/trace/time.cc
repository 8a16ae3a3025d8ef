#include "trace/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/calendar.h"
#include "base/text.h"
#include "trace/any_time.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

int places_of(TimeKind kind) {
  switch (kind) {
    case TimeKind::calendar:
    case TimeKind::seconds: return 9;
    case TimeKind::milliseconds: return 6;
    case TimeKind::microseconds: return 3;
    case TimeKind::nanoseconds:
    case TimeKind::words:
    case TimeKind::day_first:
    case TimeKind::month_first: return 0;
  }
  return 9;
}

// `count` digits as a number, or -1.
int digits(std::string_view text, std::size_t from, std::size_t count) {
  int value = 0;
  for (std::size_t i = from; i < from + count; ++i) {
    if (!is_digit(text[i])) return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

// "2024-03-15T11:04", with either separator; nothing if there is no such minute.
std::optional<std::int64_t> minute_of(std::string_view text) {
  if (text.size() < 16) return std::nullopt;
  const char date = text[4];
  const char join = text[10];
  if ((date != '-' && date != '/') || text[7] != date || text[13] != ':') return std::nullopt;
  if (join != 'T' && join != 't' && join != ' ') return std::nullopt;
  const int year = digits(text, 0, 4);
  const int month = digits(text, 5, 2);
  const int day = digits(text, 8, 2);
  const int hour = digits(text, 11, 2);
  const int minute = digits(text, 14, 2);
  // Nanoseconds since 1970 in 64 bits end in 2262.
  if (year < 1970 || year > 2261 || month < 1 || day < 1 || hour < 0 || hour > 23 || minute < 0 || minute > 59)
    return std::nullopt;
  const std::chrono::year_month_day date_of{std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                            std::chrono::day(static_cast<unsigned>(day))};
  if (!date_of.ok()) return std::nullopt;
  const auto days = std::chrono::sys_days(date_of).time_since_epoch().count();
  return ((static_cast<std::int64_t>(days) * 24 + hour) * 60 + minute) * 60 * kSecond;
}

// What follows the minute: ":29.052Z". Returns what follows it, or nullptr.
const char* read_seconds(const char* p, std::int64_t& ns, bool& zoned) {
  zoned = false;
  if (p[0] != ':' || !is_digit(p[1]) || !is_digit(p[2])) return nullptr;
  const std::int64_t seconds = (p[1] - '0') * 10 + (p[2] - '0');
  if (seconds > 60) return nullptr;  // 60: a leap second
  p += 3;
  std::int64_t part = 0;
  if (*p == '.') {
    std::int64_t worth = kSecond / 10;
    const char* const first = ++p;
    for (; is_digit(*p); ++p, worth /= 10) part += (*p - '0') * worth;
    if (p == first) return nullptr;
  }
  ns += seconds * kSecond + part;
  zoned = *p == 'Z' || *p == 'z' || *p == '+' || *p == '-';
  if (*p == 'Z' || *p == 'z') return p + 1;
  if (!zoned) return p;
  if (!is_digit(p[1]) || !is_digit(p[2])) return nullptr;
  const std::int64_t hours = (p[1] - '0') * 10 + (p[2] - '0');
  const char* const rest = p[3] == ':' ? p + 4 : p + 3;  // +01:00, +0100
  if (!is_digit(rest[0]) || !is_digit(rest[1])) return nullptr;
  const std::int64_t minutes = (rest[0] - '0') * 10 + (rest[1] - '0');
  if (hours > 23 || minutes > 59) return nullptr;
  ns -= (*p == '-' ? -1 : 1) * (hours * 60 + minutes) * 60 * kSecond;
  return rest + 2;
}

}  // namespace

TimeKind kind_by_magnitude(double number) {
  number = std::abs(number);
  if (number < 1e11) return TimeKind::seconds;
  if (number < 1e14) return TimeKind::milliseconds;
  if (number < 1e17) return TimeKind::microseconds;
  return TimeKind::nanoseconds;
}

std::optional<TimeKind> time_unit(std::string_view unit) {
  if (unit == "s" || unit == "sec" || unit == "seconds") return TimeKind::seconds;
  if (unit == "ms" || unit == "msec" || unit == "milliseconds") return TimeKind::milliseconds;
  if (unit == "us" || unit == "µs" || unit == "usec" || unit == "microseconds") return TimeKind::microseconds;
  if (unit == "ns" || unit == "nsec" || unit == "nanoseconds") return TimeKind::nanoseconds;
  if (unit == "dmy") return TimeKind::day_first;
  if (unit == "mdy") return TimeKind::month_first;
  return std::nullopt;
}

bool looks_like_calendar(std::string_view cell) { return minute_of(trim(cell)).has_value(); }

bool zone_mismatch(std::string_view calendar, bool zoned) {
  calendar = trim(calendar);
  const std::string_view tail = calendar.substr(std::min<std::size_t>(16, calendar.size()));
  if (tail.empty() || is_digit(tail.back()) || tail.back() == 'Z' || tail.back() == 'z')
    return (tail.find_first_of("Zz+-") != std::string_view::npos) != zoned;
  const auto time = read_any_time(calendar);  // "… UTC"
  return time && time->zone_minutes.has_value() != zoned;
}

std::optional<std::int64_t> parse_time(std::string_view cell, TimeKind kind) {
  const std::string text = std::string(trim(cell)) + '\n';
  const char* const end = text.data() + text.size() - 1;
  std::int64_t ns = 0;
  if (kind == TimeKind::calendar) {
    bool zoned = false;
    if (const auto minute = minute_of(text)) {
      ns = *minute;
      if (read_seconds(text.data() + 16, ns, zoned) == end) return ns;
    }
  }
  if (kind == TimeKind::calendar || kind >= TimeKind::words) {
    const auto time = read_any_time(cell, kind == TimeKind::day_first     ? DayOrder::day_first
                                          : kind == TimeKind::month_first ? DayOrder::month_first
                                                                          : DayOrder::unknown);
    if (!time || (kind == TimeKind::calendar && !(time->dated && time->has_year))) return std::nullopt;
    return time->ns;
  }
  if (read_fixed(text.data(), places_of(kind), ns) == end) return ns;
  double number = 0;  // 1.71e9
  if (read_number_exactly(text.data(), end, number) != end) return std::nullopt;
  for (int place = 0; place < places_of(kind); ++place) number *= 10;  // pow() would need the maths library
  if (!(std::abs(number) < 9e18)) return std::nullopt;
  return std::llround(number);
}

std::string format_time(std::int64_t ns, bool zone, int zone_minutes) {
  const int places = ns % 1'000'000 == 0 ? 3 : ns % 1000 == 0 ? 6 : 9;
  if (zone) ns += zone_minutes * 60 * kSecond;
  std::string text = format_rfc3339(WallTime(Duration(ns)), places);
  if (zone && zone_minutes == 0) return text;
  text.pop_back();
  if (!zone) return text;
  const int minutes = std::abs(zone_minutes);
  return fmt::format("{}{}{:02}:{:02}", text, zone_minutes < 0 ? '-' : '+', minutes / 60, minutes % 60);
}

const char* TimeReader::read(const char* p, std::int64_t& ns) {
  if (kind_ == TimeKind::calendar) return read_calendar(p, ns);
  if (kind_ >= TimeKind::words) return nullptr;
  return read_fixed(p, places_of(kind_), ns);
}

const char* TimeReader::read_calendar(const char* p, std::int64_t& ns) {
  if (std::memcmp(p, minute_, sizeof minute_) != 0) {
    if (std::memchr(p, '\n', sizeof minute_) != nullptr) return nullptr;
    const auto minute = minute_of({p, sizeof minute_});
    if (!minute) return nullptr;
    std::memcpy(minute_, p, sizeof minute_);
    minute_ns_ = *minute;
  }
  ns = minute_ns_;
  bool zoned = false;
  const char* const after = read_seconds(p + sizeof minute_, ns, zoned);
  return zoned == zoned_ ? after : nullptr;
}

}  // namespace lull::trace
