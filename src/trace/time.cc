#include "trace/time.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/calendar.h"
#include "base/text.h"
#include "trace/number.h"

namespace lull::trace {
namespace {

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

namespace {

constexpr int kLeapYear = 1972;              // so that a 29th of February has a place
constexpr std::int64_t kLeapYearDays = 730;  // when it began

struct Zone {
  std::string_view name;
  int minutes;
};
// Those that mean one thing only: CST, IST and BST are each of several countries.
constexpr std::array kZones = {
    Zone{"Z", 0},      Zone{"UTC", 0},    Zone{"GMT", 0},    Zone{"WET", 0},    Zone{"WEST", 60},  Zone{"CET", 60},
    Zone{"CEST", 120}, Zone{"EET", 120},  Zone{"EEST", 180}, Zone{"EST", -300}, Zone{"EDT", -240}, Zone{"CDT", -300},
    Zone{"MDT", -360}, Zone{"PST", -480}, Zone{"PDT", -420}, Zone{"JST", 540},  Zone{"KST", 540}};
constexpr std::array<std::string_view, 8> kUnclearZones = {"CST", "IST", "BST", "MST", "AEST", "AEDT", "SGT", "HKT"};
constexpr std::string_view kMonths = "janfebmaraprmayjunjulaugsepoctnovdec";
constexpr std::string_view kDays = "montuewedthufrisatsun";

// Where a three-letter word stands in a row of such, from 1; 0: nowhere.
int place_in(std::string_view row, std::string_view word) {
  if (word.size() < 3) return 0;
  const std::string first = lowered(word.substr(0, 3));
  for (std::size_t i = 0; i + 3 <= row.size(); i += 3)
    if (row.substr(i, 3) == first) return static_cast<int>(i / 3) + 1;
  return 0;
}

std::optional<int> number_of(std::string_view text, std::size_t most_digits) {
  if (text.empty() || text.size() > most_digits) return std::nullopt;
  int value = 0;
  for (const char c : text) {
    if (!is_digit(c)) return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

struct Date {
  int year = 0;  // 0: not said
  int month = 0;
  int day = 0;
};

std::optional<std::int64_t> days_of(const Date& date) {
  const int year = date.year == 0 ? kLeapYear : date.year;
  if (year < 1970 || year > 2261 || date.month < 1 || date.day < 1) return std::nullopt;
  const std::chrono::year_month_day civil{std::chrono::year(year),
                                          std::chrono::month(static_cast<unsigned>(date.month)),
                                          std::chrono::day(static_cast<unsigned>(date.day))};
  if (!civil.ok()) return std::nullopt;
  return std::chrono::sys_days(civil).time_since_epoch().count();
}

// "2024-03-15", "2024/03/15", "20240315", "15.03.2024", "03/15/2024".
std::optional<Date> numeric_date(std::string_view text, DayOrder order, bool& swappable) {
  if (text.size() == 8 && text.find_first_not_of("0123456789") == std::string_view::npos)
    return Date{*number_of(text.substr(0, 4), 4), *number_of(text.substr(4, 2), 2), *number_of(text.substr(6), 2)};
  const std::size_t first = text.find_first_of("-/.");
  if (first == std::string_view::npos) return std::nullopt;
  const std::vector<std::string_view> parts = split(text, text[first]);
  if (parts.size() != 3) return std::nullopt;
  const auto a = number_of(parts[0], 4);
  const auto b = number_of(parts[1], 2);
  const auto c = number_of(parts[2], 4);
  if (!a || !b || !c) return std::nullopt;
  if (parts[0].size() == 4) return Date{*a, *b, *c};
  if (parts[2].size() != 4 || parts[0].size() > 2) return std::nullopt;
  if (text[first] == '.') return Date{*c, *b, *a};  // with dots the day is first
  if (*a > 12) return Date{*c, *b, *a};
  if (*b > 12) return Date{*c, *a, *b};
  swappable = *a != *b;
  if (order == DayOrder::day_first) return Date{*c, *b, *a};
  return Date{*c, *a, *b};
}

// "11:04:29.052", also "11:04"; comma or point before the fraction.
std::optional<std::int64_t> clock_ns(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto hour = number_of(text.substr(0, colon), 2);
  text.remove_prefix(colon + 1);
  const auto minute = number_of(text.substr(0, 2), 2);
  if (!hour || !minute || *hour > 23 || *minute > 59 || text.size() < 2) return std::nullopt;
  std::int64_t ns = (*hour * 60 + *minute) * 60 * kSecond;
  text.remove_prefix(2);
  if (text.empty()) return ns;
  if (text.front() != ':' || text.size() < 3) return std::nullopt;
  const auto second = number_of(text.substr(1, 2), 2);
  if (!second || *second > 60) return std::nullopt;
  ns += *second * kSecond;
  text.remove_prefix(3);
  if (text.empty()) return ns;
  if ((text.front() != '.' && text.front() != ',') || text.size() < 2) return std::nullopt;
  std::int64_t worth = kSecond / 10;
  for (const char c : text.substr(1)) {
    if (!is_digit(c)) return std::nullopt;
    ns += (c - '0') * worth;
    worth /= 10;
  }
  return ns;
}

// "+01:00", "-0500", "+02", "UTC".
std::optional<int> zone_of(std::string_view text) {
  for (const Zone& zone : kZones)
    if (zone.name == text || (text == "z" && zone.name == "Z")) return zone.minutes;
  if (text.size() < 3 || (text.front() != '+' && text.front() != '-')) return std::nullopt;
  const auto hours = number_of(text.substr(1, 2), 2);
  std::string_view rest = text.substr(3);
  if (rest.starts_with(':')) rest.remove_prefix(1);
  const auto minutes = rest.empty() ? std::optional(0) : number_of(rest, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59) return std::nullopt;
  return (text.front() == '-' ? -1 : 1) * (*hours * 60 + *minutes);
}

// One word after another adds what it says; a word that says nothing of a time ends it.
class Gatherer {
 public:
  explicit Gatherer(DayOrder order) : order_(order) {}

  bool take(std::string_view word) {
    if (word == "@" && date_.day != 0 && !clock_) return true;  // 04-03-2021 @ 11:04:29
    if (!clock_ && (take_joined(word) || take_clock(word))) return true;
    if (clock_ && !zone_ && !half_ && take_half(word)) return true;
    if (clock_ && !zone_)
      if (const auto zone = zone_of(word)) {
        zone_ = zone;
        return true;
      }
    // A zone of several meanings says no more than a wall clock does.
    if (clock_ && std::find(kUnclearZones.begin(), kUnclearZones.end(), word) != kUnclearZones.end()) return true;
    return take_date(word);
  }
  bool complete() const { return clock_.has_value(); }
  bool finished() const { return clock_ && date_.day && date_.year && zone_; }

  std::optional<AnyTime> result(bool& swappable) const {
    swappable = swappable_;
    if (!clock_) return std::nullopt;
    AnyTime time;
    time.ns = *clock_;
    time.zone_minutes = zone_;
    time.dated = date_.day != 0;
    time.has_year = date_.year != 0;
    if (half_) {
      const std::int64_t twelve = 12 * 3600 * kSecond;
      if (time.ns >= 13 * 3600 * kSecond) return std::nullopt;
      time.ns = time.ns % twelve + (*half_ == 'p' ? twelve : 0);
    }
    if (time.dated) {
      const auto days = days_of(date_);
      if (!days) return std::nullopt;
      time.ns += (*days - (time.has_year ? 0 : kLeapYearDays)) * 24 * 3600 * kSecond;
    } else if (date_.month != 0 || date_.year != 0) {
      return std::nullopt;
    }
    if (zone_) time.ns -= *zone_ * 60 * kSecond;
    return time;
  }

 private:
  bool take_joined(std::string_view word) {  // 2024-03-15T11:04:29Z
    const std::size_t join = word.find_first_of("Tt");
    if (join == std::string_view::npos || join < 8 || date_.day != 0) return false;
    bool swappable = false;
    const auto date = numeric_date(word.substr(0, join), order_, swappable);
    if (!date || swappable) return false;
    if (!take_clock(word.substr(join + 1))) return false;
    date_ = *date;
    return true;
  }
  bool take_clock(std::string_view word) {
    while (word.ends_with(',')) word.remove_suffix(1);
    const std::size_t end = std::min(word.find_first_not_of("0123456789:.,"), word.size());
    const auto clock = clock_ns(word.substr(0, end));
    if (!clock) return false;
    if (end < word.size()) {
      zone_ = zone_of(word.substr(end));
      if (!zone_ && !take_half(word.substr(end))) return false;
    }
    clock_ = clock;
    return true;
  }
  bool take_half(std::string_view word) {
    const std::string half = lowered(word);
    if (half != "am" && half != "pm") return false;
    half_ = half.front();
    return true;
  }
  bool take_date(std::string_view word) {
    while (word.ends_with(',')) word.remove_suffix(1);
    if (date_.month == 0)
      if (const auto date = numeric_date(word, order_, swappable_)) {
        date_ = *date;
        return true;
      }
    if (word.size() == 3 && place_in(kDays, word) != 0 && !day_named_) return day_named_ = true;
    if (date_.month == 0 && place_in(kMonths, word) != 0 && word.find_first_of("0123456789") == std::string_view::npos)
      return (date_.month = place_in(kMonths, word)) != 0;
    if (const auto number = number_of(word, 4)) {
      if (word.size() == 4 && date_.year == 0 && date_.month != 0 && date_.day != 0) return (date_.year = *number) != 0;
      if (word.size() <= 2 && date_.day == 0 && *number >= 1 && *number <= 31) return (date_.day = *number) != 0;
    }
    return false;
  }

  DayOrder order_;
  Date date_;
  std::optional<std::int64_t> clock_;
  std::optional<int> zone_;
  std::optional<char> half_;
  bool day_named_ = false;
  bool swappable_ = false;
};

// Takes words from the front of `text` for as long as they belong to a time.
std::optional<AnyTime> gather(std::string_view& text, DayOrder order, bool& swappable) {
  Gatherer gatherer(order);
  std::optional<AnyTime> best;
  std::string_view rest = text;
  for (int words = 0; words < 8; ++words) {
    const std::size_t from = rest.find_first_not_of(" \t\r");
    if (from == std::string_view::npos) break;
    const std::size_t to = std::min(rest.find_first_of(" \t\r", from), rest.size());
    if (!gatherer.take(rest.substr(from, to - from))) break;
    rest.remove_prefix(to);
    if (!gatherer.complete()) continue;
    if (const auto time = gatherer.result(swappable)) {
      best = time;
      text = rest;
    }
    if (gatherer.finished()) break;
  }
  return best;
}

}  // namespace

std::optional<AnyTime> read_any_time(std::string_view text, DayOrder order) {
  bool swappable = false;
  std::string_view rest = trim(text);
  const auto time = gather(rest, order, swappable);
  if (!time || !trim(rest).empty() || (swappable && order == DayOrder::unknown)) return std::nullopt;
  return time;
}

bool is_unclear_day(std::string_view text) {
  return !read_any_time(text) && read_any_time(text, DayOrder::day_first).has_value();
}

std::optional<AnyTime> take_any_time(std::string_view& line, DayOrder order) {
  bool swappable = false;
  std::string_view rest = line;
  if (rest.starts_with('[')) {  // [2024-03-15 11:04:29] …
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos || close > 40) return std::nullopt;
    const auto time = read_any_time(rest.substr(1, close - 1), order);
    if (time) line.remove_prefix(close + 1);
    return time;
  }
  const auto time = gather(rest, order, swappable);
  if (!time || (swappable && order == DayOrder::unknown)) return std::nullopt;
  line = rest;
  return time;
}

DayOrder day_order_of(std::string_view text) {
  const std::string_view word = trim(text).substr(0, trim(text).find_first_of(" T,"));
  const std::vector<std::string_view> parts = split(word, word.find('/') != std::string_view::npos ? '/' : '-');
  if (parts.size() != 3 || parts[0].size() > 2) return DayOrder::unknown;
  const auto a = number_of(parts[0], 2);
  const auto b = number_of(parts[1], 2);
  if (a && *a > 12) return DayOrder::day_first;
  if (b && *b > 12) return DayOrder::month_first;
  return DayOrder::unknown;
}

}  // namespace lull::trace
