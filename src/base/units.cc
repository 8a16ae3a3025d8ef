#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "base/process.h"
#include "base/text.h"

namespace lull {
namespace {

using Unit = UnitOfMeasure;
constexpr std::array kDurations = {
    Unit{"ns", 1},         Unit{"us", 1e3},        Unit{"ms", 1e6},         Unit{"s", 1e9},     Unit{"sec", 1e9},
    Unit{"secs", 1e9},     Unit{"second", 1e9},    Unit{"seconds", 1e9},    Unit{"m", 60e9},    Unit{"min", 60e9},
    Unit{"mins", 60e9},    Unit{"minute", 60e9},   Unit{"minutes", 60e9},   Unit{"h", 3600e9},  Unit{"hr", 3600e9},
    Unit{"hrs", 3600e9},   Unit{"hour", 3600e9},   Unit{"hours", 3600e9},   Unit{"d", 86400e9}, Unit{"day", 86400e9},
    Unit{"days", 86400e9}, Unit{"week", 604800e9}, Unit{"weeks", 604800e9},
};
// The names by which sizes are written; a letter alone (20G) is understood as the binary one, as by other tools.
constexpr std::array kSizes = {
    Unit{"TiB", 1024.0 * 1024 * 1024 * 1024},
    Unit{"GiB", 1024.0 * 1024 * 1024},
    Unit{"MiB", 1024.0 * 1024},
    Unit{"KiB", 1024.0},
    Unit{"TB", 1e12},
    Unit{"GB", 1e9},
    Unit{"MB", 1e6},
    Unit{"KB", 1e3},
    Unit{"B", 1},
};

// 27 years: ten times as long, added to a time of today, is still a time.
constexpr double kLongest = 10'000 * 86400e9;

template <class Table>
double worth_of(const Table& table, std::string_view name) {
  for (const Unit& unit : table)
    if (unit.name == name) return unit.worth;
  return 0;
}

// Cuts "90.5" off the front of "90.5s"; npos-free: an empty number is none.
std::pair<std::string_view, std::string_view> number_and_rest(std::string_view text) {
  const std::size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  return {text.substr(0, end), text.substr(end)};
}

}  // namespace

double duration_unit(std::string_view unit) { return worth_of(kDurations, unit); }
double size_unit(std::string_view unit) {
  if (unit.size() != 1) return unit == "kB" ? 1e3 : worth_of(kSizes, unit);
  for (const Unit& one : kSizes)
    if (one.name.front() == lowered(unit).front() - 'a' + 'A') return one.worth;  // the binary ones come first
  return 0;
}
std::span<const UnitOfMeasure> size_units() { return kSizes; }

Result<Duration> parse_duration(std::string_view text) {
  const std::string_view whole = text;
  const auto refuse = [&] {
    return fail(fmt::format("'{}' is not a duration: a number with ms, s, m, h or d is, such as 90s or 1h30m",
                            printable(whole)));
  };
  text = trim(text);
  if (text.empty()) return refuse();
  const auto too_long = [&] {
    return fail(fmt::format("'{}' is too long: 10000d at most would be right", printable(trim(whole))));
  };
  std::int64_t total = 0;  // whole nanoseconds: a double has not enough digits for 8920d and 1ns
  for (bool first = true; !text.empty(); first = false) {
    const auto [digits, rest] = number_and_rest(text);
    const auto number = to_double(digits);
    if (!number) return refuse();
    const std::size_t end = std::min(rest.find_first_of("0123456789."), rest.size());
    const std::string_view unit = trim(rest.substr(0, end));
    if (unit.empty() && first && rest.empty()) {
      if (*number == 0) return Duration::zero();
      return fail(fmt::format("'{0}' needs a unit: {0}s, {0}m or {0}h would be right", printable(digits)));
    }
    const double worth = duration_unit(unit);
    if (worth == 0) return refuse();
    if (!(*number * worth <= kLongest)) return too_long();
    total += std::llround(*number * worth);
    if (static_cast<double>(total) > kLongest) return too_long();
    text = rest.substr(end);
  }
  return Duration(total);
}

Result<std::uint64_t> parse_size(std::string_view text) {
  const auto [digits, rest] = number_and_rest(trim(text));
  const auto number = to_double(digits);
  const std::string_view unit = trim(rest);
  if (unit.empty() && number && *number != 0)
    return fail(fmt::format("'{0}' needs a unit: {0}GiB or {0}MiB would be right", printable(digits)));
  const double worth = unit.empty() ? 1 : size_unit(unit);
  const double bytes = number ? *number * worth : 0;
  if (!number || worth == 0 || !(bytes < 18e18))
    return fail(
        fmt::format("'{}' is not a size: a number with a unit is, such as 8GiB, 8G, 700MiB or 20GB", printable(text)));
  return static_cast<std::uint64_t>(std::llround(bytes));
}

std::string format_duration(Duration duration) {
  using namespace std::chrono;
  if (duration < Duration::zero()) return "-" + format_duration(-duration);
  if (duration < 1s) {
    const auto ms = duration_cast<milliseconds>(duration);
    if (duration == Duration::zero()) return "0s";
    return ms.count() > 0 ? fmt::format("{}ms", ms.count()) : fmt::format("{}ns", duration.count());
  }
  const auto total = duration_cast<seconds>(duration).count();
  const auto ms = duration_cast<milliseconds>(duration).count() % 1000;
  if (total < 10 && ms != 0)
    return fmt::format("{}.{}s", total, fmt::format("{:03}", ms).substr(0, ms % 100 == 0 ? 1 : 3));
  std::string text;
  const auto part = [&](std::int64_t count, char unit) {
    if (count != 0) text += fmt::format("{}{}", count, unit);
  };
  part(total / 86400, 'd');
  part(total / 3600 % 24, 'h');
  part(total / 60 % 60, 'm');
  part(total % 60, 's');
  return text;
}

std::string format_size(double bytes) {
  if (std::isnan(bytes)) return "?";
  constexpr std::array<std::string_view, 5> kNames = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kNames.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kNames[unit]);
}

Result<Duration> duration_option(std::string_view name, std::string_view text) {
  return during(name, parse_duration(text));
}

Result<Duration> limit_option(std::string_view name, std::string_view text) {
  const Duration limit = TRY(duration_option(name, text));
  if (limit == Duration::zero()) return fail(fmt::format("{} 0 leaves no time at all: 30s would be right", name));
  return limit;
}

Result<std::size_t> choice_option(std::string_view name, std::string_view text,
                                  std::span<const std::string_view> words) {
  return during(name, one_of(text, words));
}

Result<int> signal_option(std::string_view name, std::string_view text) { return during(name, parse_signal(text)); }

}  // namespace lull
