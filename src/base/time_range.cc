#include "base/time_range.h"

#include <fmt/format.h>

#include <ctime>
#include <limits>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

TimeRange::Bound bound_at(std::int64_t moment) {
  const std::time_t seconds = moment / kSecond - (moment % kSecond < 0 ? 1 : 0);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  return {moment, ::timegm(&parts) * kSecond + (moment - seconds * kSecond)};
}

// Local time: "2026-11-01", "2026-11-01 12:00", "2026-11-01T12:00:30". `next_day`: of a day alone, where it ends.
std::optional<TimeRange::Bound> parse_local(const std::string& text, bool next_day) {
  for (const char* format :
       {"%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"}) {
    std::tm parts{};
    const char* rest = ::strptime(text.c_str(), format, &parts);
    if (rest == nullptr || *rest != '\0' || text.size() < 10) continue;
    const std::tm written = parts;
    if (next_day && text.size() == 10) ++parts.tm_mday;
    parts.tm_isdst = -1;
    std::tm as_utc = parts;
    const std::time_t moment = ::mktime(&parts);
    const std::time_t wall = ::timegm(&as_utc);
    // strptime takes the 31st of November for a day; timegm makes the 1st of December of it.
    const bool moved = !next_day && (as_utc.tm_mday != written.tm_mday || as_utc.tm_mon != written.tm_mon);
    if (moved || moment < 0 || written.tm_year < 70 || written.tm_year > 300) return std::nullopt;
    return TimeRange::Bound{moment * kSecond, wall * kSecond};
  }
  return std::nullopt;
}

Result<TimeRange::Bound> read_bound(std::string_view option, std::string_view text, bool is_end) {
  if (const auto moment = parse_rfc3339(text)) return bound_at(moment->time_since_epoch().count());
  if (const auto local = parse_local(std::string(text), is_end)) return *local;
  return fail(fmt::format("{}: '{}' is not a time: 2026-11-17, 2026-11-17T12:00 or 2026-11-17T12:00:00Z would be right",
                          option, printable(text)));
}

}  // namespace

std::int64_t TimeRange::lowest(bool zoned) const {
  if (!from) return std::numeric_limits<std::int64_t>::min();
  return zoned ? from->moment : from->wall;
}

std::int64_t TimeRange::end(bool zoned) const {
  if (!to) return std::numeric_limits<std::int64_t>::max();
  return zoned ? to->moment : to->wall;
}

Result<TimeRange> time_range_option(std::string_view last, std::string_view from, std::string_view to, WallTime now) {
  TimeRange range;
  if (!last.empty() && !from.empty()) return fail("--last or --from, not both");
  if (!last.empty() && !to.empty()) return fail("--last ends now: --from goes with --to");
  if (!last.empty()) {
    const Duration back = TRY(limit_option("--last", last));
    range.from = bound_at((now.time_since_epoch() - back).count());
  }
  if (!from.empty()) range.from = TRY(read_bound("--from", from, false));
  if (!to.empty()) range.to = TRY(read_bound("--to", to, true));
  if (range.from && range.to && range.from->moment >= range.to->moment)
    return fail(fmt::format("--to {} is not after --from {}", printable(to), printable(from)));
  return range;
}

std::string format_range(const TimeRange& range) {
  const auto at = [](const TimeRange::Bound& bound) {
    return format_local(WallTime(Duration(bound.moment)), "%Y-%m-%dT%H:%M:%S");
  };
  if (range.from && range.to) return fmt::format("from {} to {}", at(*range.from), at(*range.to));
  if (range.from) return "from " + at(*range.from);
  return range.to ? "to " + at(*range.to) : "at all";
}

}  // namespace lull
