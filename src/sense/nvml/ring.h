#pragma once
// The driver's buffer of utilisation samples (nvmlDeviceGetSamples), put on our own
// clock. Real drivers keep 72 samples, about 10 s. Each has a time stamp in µs: since
// boot on some drivers, since 1970 on others (and none says which), so whichever clock
// of ours the newest stamp is near is the one. A buffer that fits no clock cannot be
// used: then we do not know which time its samples are of.
//
// Pure: what the driver said goes in, with what our clocks said at that moment.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "nvml/abi.h"
#include "sense/nvml/means.h"

namespace lull {

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
  double percent;  // NaN: the driver wrote what is no percentage. That time was not measured
};

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
// idle or not of now: the driver records nothing while nobody holds the card.
std::optional<Duration> idle_tail(std::span<const RingSpan> spans, Instant now);

}  // namespace lull
