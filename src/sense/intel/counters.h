#pragma once
// Means from counters that the kernel keeps for a card: nothing is lost between two samples, however far apart they
// are, so no reading in between is needed (which would keep a GPU awake). Pure: it reads no file and no clock.

#include <deque>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "sense/files.h"
#include "sense/nvml/meters.h"

namespace lull {

// Some counters, read between two moments.
struct CounterPoint {
  Instant before{};
  Instant after{};
  std::vector<FileValue<double>> values;
};

class CounterMeter {
 public:
  // A confirmation's newest data are of so long at least: counters are rounded to milliseconds.
  static constexpr Duration kShortestNewest = std::chrono::milliseconds(900);
  static constexpr Duration kPeriod = std::chrono::seconds(1);

  // What they came to from one point to another; why, where that is not known.
  using Rate = std::function<FileValue<double>(const CounterPoint& from, const CounterPoint& to)>;
  explicit CounterMeter(Rate rate) : rate_(std::move(rate)) {}

  void add(CounterPoint point);
  // The mean since the previous take. Where it is not known, the next one begins here.
  MeterTake take();
  void restart() { points_.clear(); }
  bool has_baseline() const { return !points_.empty(); }

 private:
  Rate rate_;
  std::deque<CounterPoint> points_;  // those since the last take, and as many before as the newest data need
  std::size_t taken_ = 0;            // the point of the last take
};

// How busy the busiest of several engines is, in %, by the time that each was idle, in ms. It errs towards work. A
// counter that never moved is of a card that is always busy, or does not count.
class BusyByIdle {
 public:
  // The residency of some drivers is 32 bit of 1.28 µs.
  static constexpr double kWrapsAt = 4294967296.0 * 1.28e-3;  // ms
  FileValue<double> operator()(const CounterPoint& from, const CounterPoint& to);

 private:
  std::vector<bool> moved_;
};

// Watts, by microjoules. A counter that stands still, runs backwards or leaps tells nothing; nor does one that is so
// small that it may have begun at 0 again in between, on a card that draws `most_watts` at most.
FileValue<double> watts_between(const CounterPoint& from, const CounterPoint& to, double most_watts);

}  // namespace lull
