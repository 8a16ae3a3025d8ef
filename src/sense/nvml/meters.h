#pragma once
// From what the driver said at several times to means between two samples: utilisation and power. Pure: it reads no
// clock and calls no driver.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "nvml/abi.h"
#include "sense/source.h"

namespace lull {

// Below this a GPU counts as idle if there is no rule.
inline constexpr double kIdleBelow = 5;  // % of util

// ---- utilisation

// What our clocks say at one moment, in µs.
struct RingClocks {
  std::int64_t boot = 0;                                  // since boot, suspend included
  std::int64_t monotonic = 0;                             // since boot without it
  std::int64_t wall = 0;                                  // since 1970
  static RingClocks at(const Clock& clock, Instant now);  // `now`: of that clock, a moment ago
};

// One sample: the share of (from, to] in which the GPU worked.
struct RingSpan {
  Instant from;
  Instant to;
  double percent;  // NaN: the driver wrote a value that is not a percentage. That time was not measured
};

// The driver's buffer of utilisation samples (nvmlDeviceGetSamples), put on our own clock. Real drivers keep 72
// samples, about 10 s. Each has a time stamp in µs: since boot on some drivers, since 1970 on others (and none says
// which), so whichever clock of ours the newest stamp is near is the one. A buffer that fits no clock cannot be used.
class Ring {
 public:
  // All samples of the buffer, oldest first, on our clock; nothing where the stamps fit no clock of ours. A
  // sample is of the time since the one before it; after a gap, of the usual time between two. The result
  // is valid until the next call.
  std::optional<std::span<const RingSpan>> place(std::span<const nvml::Sample> samples, unsigned value_type,
                                                 Instant now, const RingClocks& clocks);
  // Between two samples; zero where that is not known.
  Duration usual() const { return usual_; }

 private:
  enum class Stamps : std::uint8_t { unknown, boot, monotonic, wall };
  struct Entry {
    std::int64_t at;  // µs
    double percent;
  };
  void collect(std::span<const nvml::Sample> samples, unsigned value_type);
  void find_usual();
  std::optional<std::int64_t> age(std::int64_t clock_now) const;  // of the newest that is not of the future
  std::optional<std::int64_t> find_clock(const RingClocks& clocks);

  Stamps stamps_ = Stamps::unknown;
  Duration usual_{};
  std::vector<Entry> entries_;
  std::vector<std::int64_t> distances_;
  std::vector<RingSpan> spans_;
};

// A number out of the driver's union; NaN for a type that we do not know.
double number_of(const nvml::Value& value, unsigned value_type);

// For how long the buffer shows less than kIdleBelow, without a break up to now. Nothing where its end is not
// idle or not of now: the driver records nothing while no process holds the GPU.
std::optional<Duration> idle_tail(std::span<const RingSpan> spans, Instant now);

inline constexpr double kCoveredEnough = 0.9;
// Where there is nothing to look at.
inline constexpr Duration kNoLook = std::chrono::hours(24);
// Uneven on purpose: between two thirds of `most` and `most`, by the time of the previous look.
Duration uneven(Duration most, Instant last);

// What the ring said at a look.
struct RingLook {
  enum class State : std::uint8_t { not_asked, none, read };
  State state = State::not_asked;     // none: the card has no ring, or its stamps fit no clock
  std::span<const RingSpan> spans{};  // read: everything that it holds; empty: dry
  Duration usual{};                   // between two samples, where known
};

struct MeterTake {
  double mean = kUnknown;
  double coverage = 0;  // share of the time since the previous take
  Basis basis = Basis::unknown;
  Absence absence = Absence::not_covered;  // none: `mean` is there
  Band newest = {};                        // as Reading::util_newest
  Duration span{};                         // as Reading::newest_span
  Duration period{};                       // as Reading::newest_period
};

// A momentary value, and why it is not there.
struct Moment {
  std::optional<double> value;
  Absence why = Absence::none;
  bool other = false;  // another source (ring, counter) answered
};

// What was measured into a reading. What cannot be measured says why; what was measured for a part of the time only
// says that.
void publish(Reading& reading, Metric metric, const MeterTake& take, const Moment& moment);
// The same for utilisation, with what the newest data are of.
void publish_util(Reading& reading, const MeterTake& take, const Moment& moment);

// How busy a GPU was between two samples of its owner, however far apart they are. The owner looks as often as
// look_within() asks, and takes the mean when a sample is wanted. Two sources are put together:
//   - the driver's ring, which accounts for all time that it holds samples of (about 10 s);
//   - the moment's value, which NVML means for the last 1/6 s to 1 s. It fills what the ring leaves open, and is looked
//     at several times a second, at uneven distances, so that work in step with our looks cannot hide from them.
// The ring of an idle card may run dry, and so may that of a card that works (seen on real ones): a dry ring says
// nothing. One that was relied on and ran dry is not relied on again. A mean of less than nine tenths of its time is no
// mean (not_covered).
class UtilMeter {
 public:
  // `moment` in %, nothing where it could not be read. Times must not go backwards.
  void look(Instant now, std::optional<double> moment, const RingLook& ring);
  // The mean since the previous take; of the first one, which has no time to be a mean of, the moment's
  // value. To be called right after a look at the same time.
  MeterTake take(Instant now);
  // After a look whose moment could not be read: the next one does not stand for the time before this.
  void missed(Instant now) { moment_at_ = now; }
  // The device was gone: what lies before does not belong to the next mean, which is that of a first sample.
  void restart() { begun_ = false; }

  // How soon the next look must come.
  Duration look_within() const;
  // Whether a look should ask the ring: not before it can have something new, and seldom where the moments
  // have to do anyway. A sample wants what there is, a look between samples only what would be lost.
  bool ring_due(Instant now, bool sample) const;

 private:
  struct Sum {
    double value = 0;    // % x s
    double seconds = 0;  // covered
    void add(Instant from, Instant to, double percent);
  };
  struct Stretch {
    Instant from;
    Instant to;
    double percent;
  };
  void begin(Instant now);
  void remember(const Stretch& moment);
  void add_ring(Instant now, const RingLook& ring);
  void settle(Instant until);  // with what the moments say
  void judge_ring(Instant now, const RingLook& ring);
  void remember_newest(const RingLook& ring);
  void add_newest(Instant now, MeterTake& take) const;

  bool begun_ = false;
  bool taken_ = false;
  Instant looked_{};     // the previous look
  Instant moment_at_{};  // the last that had a moment's value
  std::optional<double> moment_;
  Instant ring_looked_{};
  bool has_ring_ = true;            // until it says otherwise
  bool steady_ = false;             // the ring accounts for all of the last seconds
  bool fickle_ = false;             // it did, and then ran dry
  Duration lag_{};                  // a ring that is this far behind is dry
  Duration usual_{};                // between two samples of it; zero: not known
  std::optional<RingSpan> newest_;  // of its samples
  Band newest_band_;                // of those that ended in its last period

  Instant taken_from_{};    // where the next mean begins: as far as was settled at the last take
  Instant settled_{};       // all before has been accounted for
  Instant ring_settled_{};  // by the ring
  Sum ring_;                // since taken_from_
  Sum moments_;
  unsigned looks_ = 0;            // that had a moment's value, since the last take
  std::vector<Stretch> pending_;  // since settled_: what the ring may still account for
};

// ---- power

// Mean power from a counter of energy.
class EnergyMeter {
 public:
  // Watts since the last call that had an answer; nothing where there is none to be had: the first reading,
  // too short a time, a counter that stood still (it moves every 100 ms or so), ran backwards or leapt.
  std::optional<double> watts(std::uint64_t millijoules, Instant now);
  // Whether it would have an answer.
  bool has_answer(std::uint64_t millijoules, Instant now) const;
  void forget() { known_ = false; }

 private:
  bool comparable(std::uint64_t millijoules, Instant now) const;
  double since(std::uint64_t millijoules, Instant now) const;

  bool known_ = false;
  std::uint64_t millijoules_ = 0;
  Instant at_{};
};

// What a GPU drew between two samples of its owner. The card's energy counter gives the exact mean over any time.
// Without one (or while it does not move) it is the mean of momentary values, looked at about twice a second; less than
// nine tenths covered is not covered.
//
// On Grace Hopper the counter is that of the whole module, processor included: 250 W for a GPU that draws 90 W. So
// where the driver knows of a module, a counter is first compared with the momentary values of the same time: one that
// is far off several times in a row is never used again for that card. Until that is settled the momentary values win
// where both are far apart.
class PowerMeter {
 public:
  static constexpr Duration kMomentIsOf = std::chrono::seconds(1);  // a moment's value is the mean of up to so long

  // `exact`: the time of the counter's value, to the millisecond. Nothing for what was not asked or could
  // not be read.
  void look(Instant now, std::optional<std::uint64_t> millijoules, Instant exact, std::optional<double> watts);
  // The mean since the previous take; of the first one, the moment's value. Right after a look.
  MeterTake take(Instant now);
  void missed(Instant now) { moment_at_ = now; }  // as UtilMeter's
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
