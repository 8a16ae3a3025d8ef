#include "base/hours.h"

#include <fmt/format.h>

#include <ctime>
#include <optional>

#include "base/text.h"

namespace lull {
namespace {

constexpr unsigned kDay = 24 * 60;

// "20", "08", "20:30", "24"; minutes since midnight.
std::optional<unsigned> minute_of(std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::string_view hour = text.substr(0, colon);
  const std::string_view minute = colon == std::string_view::npos ? "0" : text.substr(colon + 1);
  const auto hours = hour.size() <= 2 ? to_unsigned(hour) : std::nullopt;
  const auto minutes = minute.size() <= 2 ? to_unsigned(minute) : std::nullopt;
  if (!hours || !minutes || *minutes > 59 || *hours * 60 + *minutes > kDay) return std::nullopt;
  return static_cast<unsigned>(*hours * 60 + *minutes);
}

std::optional<std::tm> local_time(WallTime when) {
  const std::time_t seconds =
      std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(when));
  std::tm local{};
  if (::localtime_r(&seconds, &local) == nullptr) return std::nullopt;
  return local;
}

unsigned minute_of_day(const std::tm& local) { return static_cast<unsigned>(local.tm_hour * 60 + local.tm_min); }

}  // namespace

Result<Hours> Hours::parse(std::string_view text) {
  Hours hours;
  for (const std::string_view part : split(text, ',')) {
    const std::string_view span = trim(part);
    const std::size_t dash = span.find('-');
    const auto from = minute_of(trim(span.substr(0, dash)));
    const auto to = dash == std::string_view::npos ? std::nullopt : minute_of(trim(span.substr(dash + 1)));
    if (!from || !to || *from == *to || *from == kDay)
      return fail(fmt::format("'{}' is not a span of hours: 20-08 or 12:30-13:30 would be right", printable(span)));
    hours.spans_.push_back({*from, *to});
  }
  return hours;
}

bool Hours::contain_minute(unsigned minute) const {
  if (spans_.empty()) return true;
  for (const Span& span : spans_)
    if (span.from < span.to ? minute >= span.from && minute < span.to : minute >= span.from || minute < span.to)
      return true;
  return false;
}

bool Hours::contain(WallTime when) const {
  if (spans_.empty()) return true;
  const auto local = local_time(when);
  return local && contain_minute(minute_of_day(*local));
}

Duration Hours::until(WallTime when) const {
  const auto local = local_time(when);
  if (!local) return Duration::zero();
  const unsigned now = minute_of_day(*local);
  unsigned minutes = 0;
  while (minutes < kDay && !contain_minute((now + minutes) % kDay)) ++minutes;
  return minutes % kDay == 0 ? Duration::zero() : std::chrono::minutes(minutes) - std::chrono::seconds(local->tm_sec);
}

}  // namespace lull
