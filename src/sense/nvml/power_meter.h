#pragma once
// What a GPU drew between two samples of its owner.
//
// The card's energy counter gives the exact mean over any time. Without one (or while
// it stands still) it is the mean of momentary values, looked at about twice a second;
// as everywhere, less than nine tenths covered is not covered.
//
// On Grace Hopper the counter is that of the whole module, processor included: 250 W
// for a GPU that draws 90 W. So where the driver knows of a module, a counter is first compared with the momentary
// values of the same time: one that is far off several times in a row is never used again for that card. Until that is
// settled the momentary values win where both are far apart.
//
// Pure: it reads no clock and calls no driver.

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "sense/nvml/means.h"
#include "sense/nvml/util_meter.h"

namespace lull {

class PowerMeter {
 public:
  // `exact`: the time of the counter's value, to the millisecond. Nothing for what was not asked or could
  // not be read.
  void look(Instant now, std::optional<std::uint64_t> millijoules, Instant exact, std::optional<double> watts);
  // The mean since the previous take; of the first one, the moment's value. Right after a look.
  MeterTake take(Instant now);
  // The device was gone: as for a first sample. What is known of the counter stays known.
  void restart() { begun_ = false; }

  // The driver knows no module around this card, so whatever counts its energy counts its own.
  void trust_counter() {
    if (counter_ == Counter::unproven) counter_ = Counter::ours;
  }

  // Whether the counter is to be asked, and whether the moment's value is needed beside what it said.
  bool wants_moment(std::optional<std::uint64_t> millijoules, Instant exact) const;
  bool wants_counter() const { return counter_ != Counter::of_module; }
  bool counts_the_module() const { return counter_ == Counter::of_module; }
  Duration look_within() const;
  bool due(Instant now) const { return looked_ + kShortestLook <= now && look_within() < kNoLook; }

 private:
  static constexpr Duration kShortestLook = std::chrono::milliseconds(400);
  // The time-weighted mean of momentary values.
  struct Moments {
    double sum = 0;
    double seconds = 0;
    Instant since{};
    unsigned looks = 0;
    void add(Instant from, Instant to, double watts);
    double coverage(Instant now) const;
    double mean() const { return sum / seconds; }
  };
  enum class Counter : std::uint8_t { unproven, ours, of_module };
  void compare(std::uint64_t millijoules, Instant now, Instant exact);

  bool begun_ = false;
  bool taken_ = false;
  Counter counter_ = Counter::unproven;
  int far_ = 0;   // comparisons in a row that were far apart: above zero the counter said more, below less
  int near_ = 0;  // that agreed
  Instant looked_{};
  Instant moment_at_{};
  std::optional<double> moment_;
  std::optional<std::uint64_t> energy_;
  Instant energy_at_{};
  EnergyMeter taking_;
  EnergyMeter comparing_;
  bool comparing_begun_ = false;
  Moments since_take_;
  Moments since_compare_;
};

}  // namespace lull
