#include "base/calendar.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>

namespace lull {
namespace {

// Takes `count` digits off the front; nothing if they are not there.
std::optional<unsigned> digits(std::string_view& text, std::size_t count) {
  if (text.size() < count) return std::nullopt;
  unsigned number = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (text[i] < '0' || text[i] > '9') return std::nullopt;
    number = number * 10 + static_cast<unsigned>(text[i] - '0');
  }
  text.remove_prefix(count);
  return number;
}

bool take(std::string_view& text, std::string_view any_of) {
  if (text.empty() || any_of.find(text.front()) == std::string_view::npos) return false;
  text.remove_prefix(1);
  return true;
}

// ".052" -> 52'000'000 ns; no fraction is 0, a dot alone is wrong.
std::optional<std::int64_t> fraction(std::string_view& text) {
  if (!take(text, ".,")) return 0;
  std::int64_t nanoseconds = 0;
  std::int64_t worth = 100'000'000;
  std::size_t used = 0;
  for (; used < text.size() && text[used] >= '0' && text[used] <= '9'; ++used, worth /= 10)
    nanoseconds += (text[used] - '0') * worth;
  if (used == 0) return std::nullopt;
  text.remove_prefix(used);
  return nanoseconds;
}

// "Z", "+02:00", "-0530" in seconds east of Greenwich.
std::optional<long> zone(std::string_view& text) {
  if (take(text, "Zz")) return 0;
  const bool west = !text.empty() && text.front() == '-';
  if (!take(text, "+-")) return std::nullopt;
  const auto hours = digits(text, 2);
  take(text, ":");
  const auto minutes = digits(text, 2);
  if (!hours || !minutes || *hours > 23 || *minutes > 59) return std::nullopt;
  const long seconds = static_cast<long>(*hours) * 3600 + static_cast<long>(*minutes) * 60;
  return west ? -seconds : seconds;
}

}  // namespace

std::string format_rfc3339(WallTime time, int fraction_digits) {
  using namespace std::chrono;
  const auto day = floor<days>(time);
  const year_month_day date(day);
  const auto rest = (time - day).count();
  std::string text = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                                 static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                                 rest / 3'600'000'000'000, rest / 60'000'000'000 % 60, rest / 1'000'000'000 % 60);
  if (fraction_digits > 0)
    text += fmt::format(".{:09}", rest % 1'000'000'000).substr(0, 1 + static_cast<std::size_t>(fraction_digits));
  return text + "Z";
}

std::optional<WallTime> parse_rfc3339(std::string_view text) {
  const auto year = digits(text, 4);
  if (!year || !take(text, "-")) return std::nullopt;
  const auto month = digits(text, 2);
  if (!month || !take(text, "-")) return std::nullopt;
  const auto day = digits(text, 2);
  if (!day || !take(text, "Tt ")) return std::nullopt;
  const auto hour = digits(text, 2);
  if (!hour || !take(text, ":")) return std::nullopt;
  const auto minute = digits(text, 2);
  if (!minute || !take(text, ":")) return std::nullopt;
  const auto second = digits(text, 2);
  if (!second) return std::nullopt;
  const auto nanoseconds = fraction(text);
  const auto east = zone(text);
  using namespace std::chrono;
  const year_month_day date{std::chrono::year(static_cast<int>(*year)), std::chrono::month(*month),
                            std::chrono::day(*day)};
  if (!nanoseconds || !east || !text.empty() || !date.ok() || *hour > 23 || *minute > 59 || *second > 60)
    return std::nullopt;
  if (*year < 1970 || *year > 2200) return std::nullopt;  // what 64 bits of nanoseconds can hold
  return WallTime(sys_days(date).time_since_epoch() + hours(*hour) + minutes(*minute) + seconds(*second) -
                  seconds(*east) + std::chrono::nanoseconds(*nanoseconds));
}

std::string format_local(WallTime time, const char* strftime_format) {
  const std::time_t seconds = std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 128> buffer{};
  const std::size_t length = std::strftime(buffer.data(), buffer.size(), strftime_format, &parts);
  return {buffer.data(), length};
}

}  // namespace lull
