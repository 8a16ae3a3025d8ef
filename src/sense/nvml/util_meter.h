#pragma once
// How busy a GPU was between two samples of its owner, however far apart they are.
//
// Whoever owns a meter looks as often as look_within() asks, and takes the mean when a
// sample is wanted. Two sources are put together:
//
//   - the driver's ring, which accounts for all time that it holds samples of (about
//     10 s), so a look every 5 s misses nothing;
//   - the moment's value, which NVML means for the last 1/6 s to 1 s. It fills what the
//     ring leaves open, and is looked at several times a second for that, at uneven
//     distances, so that work which comes in step with our looks cannot hide from them.
//
// The ring of an idle card may run dry, and so may that of a card that works (seen on
// real ones). A dry ring therefore says nothing, neither busy nor idle: moments do. A
// ring that was relied on and ran dry is not relied on again, since every such time
// costs a stretch that nobody measured.
//
// What neither covers was not seen. A mean of less than nine tenths of its time is no
// mean: the caller gets not_covered, and a rule that it breaks the streak.
//
// Pure: it reads no clock and calls no driver.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "sense/nvml/ring.h"
#include "sense/source.h"

namespace lull {

inline constexpr double kCoveredEnough = 0.9;
// Where there is nothing to look at.
inline constexpr Duration kNoLook = std::chrono::hours(24);
// Uneven on purpose: between two thirds of `most` and `most`, by the time of the last look.
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
};

class UtilMeter {
 public:
  // `moment` in %, nothing where it could not be read. Times must not go backwards.
  void look(Instant now, std::optional<double> moment, const RingLook& ring);
  // The mean since the previous take; of the first one, which has no time to be a mean of, the moment's
  // value. To be called right after a look at the same time.
  MeterTake take(Instant now);
  // The device was gone: what lies before is no part of the next mean, which is that of a first sample.
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
  struct Moment {
    Instant from;
    Instant to;
    double percent;
  };
  void begin(Instant now);
  void remember(const Moment& moment);
  void add_ring(Instant now, const RingLook& ring);
  void settle(Instant until);  // with what the moments say
  void judge_ring(Instant now, const RingLook& ring);

  bool begun_ = false;
  bool taken_ = false;
  Instant looked_{};     // the last look
  Instant moment_at_{};  // the last that had a moment's value
  std::optional<double> moment_;
  Instant ring_looked_{};
  bool has_ring_ = true;  // until it says otherwise
  bool steady_ = false;   // the ring accounts for all of the last seconds
  bool fickle_ = false;   // it did, and then ran dry
  Duration lag_{};        // a ring that is this far behind is dry

  Instant taken_from_{};    // where the next mean begins: as far as was settled at the last take
  Instant settled_{};       // all before has been accounted for
  Instant ring_settled_{};  // by the ring
  Sum ring_;                // since taken_from_
  Sum moments_;
  unsigned looks_ = 0;           // that had a moment's value, since the last take
  std::vector<Moment> pending_;  // since settled_: what the ring may still account for
};

}  // namespace lull
