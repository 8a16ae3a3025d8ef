#include "signals/own_signal_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"

namespace lull {
namespace {

constexpr double kEarliestTime = 1e9;                 // of the year 2001: a server that was never asked says 0
constexpr double kLargestCounter = 9007199254740992;  // 2^53: beyond it, adding one changes nothing

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

SignalValue unknown(Absence why, std::string trouble) { return {kUnknown, why, std::move(trouble)}; }

std::string ago(double time) {
  return time < 1e9 ? format_duration(std::chrono::seconds(std::llround(time))) : std::string("very long");
}

}  // namespace

void OwnSignalState::take(const Result<SignalReading>& reading, Instant asked, WallTime wall) {
  if (!reading) {
    value_ = unknown(Absence::unreadable, reading.error().message());
    return;
  }
  value_ = read(*reading, asked, seconds(wall.time_since_epoch()));
}

// A time that lies ahead says as little as one that is long past.
std::optional<std::string> OwnSignalState::too_old(const SignalReading& reading, double now) const {
  const double most = seconds(source_.max_age);
  const bool file = source_.kind == SignalSource::Kind::file;
  for (const SignalReading::Series& one : reading.series) {
    if (!one.time || std::abs(now - *one.time) <= most) continue;
    return fmt::format("{} {} {} {}; max_age is {}", source_.to_string(),
                       file ? "was written" : "has a value of a time", ago(std::abs(now - *one.time)),
                       now > *one.time ? "ago" : "ahead", format_duration(source_.max_age));
  }
  return std::nullopt;
}

SignalValue OwnSignalState::read(const SignalReading& reading, Instant asked, double now) {
  if (auto old = too_old(reading, now)) return unknown(Absence::stale, *std::move(old));
  double sum = 0;
  double latest = reading.series.front().value;
  for (const SignalReading::Series& one : reading.series) {
    sum += one.value;
    latest = std::max(latest, one.value);
  }
  SignalValue value{kUnknown, Absence::none, ""};
  switch (source_.as) {
    case SignalSource::As::value: value.value = sum; break;
    case SignalSource::As::rate: value = rate(reading, asked); break;
    case SignalSource::As::age:
      value.value = std::max(0.0, now - latest);
      if (latest - now > seconds(source_.max_age))
        return unknown(Absence::implausible, fmt::format("{} is a time in the future", source_.to_string()));
      if (latest < kEarliestTime)
        return unknown(Absence::implausible,
                       fmt::format("{} is {}, which is not a time (seconds since 1970)", source_.to_string(), latest));
      break;
  }
  if (value.known() && !plausible(source_.metric, value.value))
    return unknown(Absence::implausible, fmt::format("{} is too large", source_.to_string()));
  return value;
}

SignalValue OwnSignalState::rate(const SignalReading& reading, Instant asked) {
  Baseline now{.counters = {}, .asked = asked, .time = {}, .started = reading.started};
  for (const SignalReading::Series& one : reading.series) {
    if (one.value < 0 || one.value > kLargestCounter) {
      before_.reset();
      return unknown(Absence::implausible,
                     fmt::format("{} is {}, which is not a counter value", source_.to_string(), one.value));
    }
    now.counters[one.labels] += one.value;
    if (one.time) now.time = std::max(now.time.value_or(*one.time), *one.time);
  }
  if (!before_) {
    before_ = std::move(now);
    return unknown(Absence::no_baseline, "");  // nothing to complain of
  }
  const bool timed = now.time && before_->time;
  // Nothing new yet: what was known stays, until it is too old.
  if (timed && *now.time == *before_->time && now.counters == before_->counters)
    return value_.known() ? value_ : unknown(Absence::no_baseline, source_.to_string() + " has given nothing new");
  const double passed = timed ? *now.time - *before_->time : seconds(now.asked - before_->asked);
  bool anew = now.started != before_->started || passed <= 0;
  double grown = 0;
  for (const auto& [labels, count] : before_->counters) {
    const auto same = now.counters.find(labels);
    anew = anew || same == now.counters.end() || same->second < count;
    if (same != now.counters.end()) grown += same->second - count;
  }
  for (const auto& [labels, count] : now.counters)
    if (!before_->counters.contains(labels)) grown += count;  // one that is new began at 0
  before_ = std::move(now);
  if (anew) return unknown(Absence::no_baseline, fmt::format("{}: the counter began anew", source_.to_string()));
  return {grown / passed, Absence::none, ""};
}

}  // namespace lull
