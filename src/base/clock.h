#pragma once
// Time enters the program here and nowhere else. Rules never ask the time: each
// sample carries its own. The clock counts through suspend (BOOTTIME), so a
// closed lid shows up as a gap between samples rather than as idleness.

#include <chrono>
#include <ctime>

namespace lull {

using Duration = std::chrono::nanoseconds;

constexpr double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

struct Boottime {
  using duration = Duration;
  using rep = duration::rep;
  using period = duration::period;
  using time_point = std::chrono::time_point<Boottime>;
  static constexpr bool is_steady = true;  // NOLINT(readability-identifier-naming): the name that <chrono> asks for
};
using Instant = Boottime::time_point;

// For people and files only: deciding never looks at it, since it can be set.
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;
constexpr double to_seconds(WallTime time) { return to_seconds(time.time_since_epoch()); }  // since 1970

class Clock {
 public:
  Clock() = default;
  Clock(const Clock&) = delete;
  Clock& operator=(const Clock&) = delete;
  virtual ~Clock() = default;
  virtual Instant now() const = 0;
  virtual WallTime wall() const = 0;
};

class SystemClock final : public Clock {
 public:
  Instant now() const override {
    timespec ts{};
    ::clock_gettime(CLOCK_BOOTTIME, &ts);
    return Instant(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
  }
  WallTime wall() const override {
    timespec ts{};
    ::clock_gettime(CLOCK_REALTIME, &ts);
    return WallTime(std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec));
  }
};

// A test's clock: it moves when told to, and only then.
class ManualClock final : public Clock {
 public:
  Instant now() const override { return now_; }
  WallTime wall() const override { return WallTime(now_.time_since_epoch()); }
  void advance(Duration by) { now_ += by; }

 private:
  Instant now_{};
};

}  // namespace lull
