#pragma once
// What each process did on a GPU between two samples, by the driver's samples per process
// (nvmlDeviceGetProcessUtilization). Pure: it reads no clock and calls no driver.
//
// The driver lists processes with use only, and answers NOT_FOUND where it has no sample since the stamp it is asked
// from. So a process that is not listed did nothing only if the driver is shown to sample: it has listed a process by a
// stamp of this time, or the whole GPU did nothing. Stamps older than the time that is asked for, and stamps of the
// future, are left out (nvtop#110); a value above 100 makes that process unknown, not idle. Time of which the driver
// says nothing adds nothing to a share; the unattributed part of `util` (Reading::unlisted_util) tells whether a
// process may be missing.

#include <sys/types.h>

#include <map>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "nvml/abi.h"
#include "sense/nvml/meters.h"

namespace lull {

class ShareMeter {
 public:
  // The stamp to ask from.
  unsigned long long last_seen() const { return last_seen_; }
  // What the driver answered. `entries` count with `success` only. Times must not go backwards.
  void look(Instant now, nvml::Return code, std::span<const nvml::ProcessUtilization> entries,
            const RingClocks& clocks);
  // What was seen since the previous take, into the reading, whose `util` is of the same time. Right after a look.
  void take(Instant now, Reading& reading);
  // The device was gone: the next take is a first one.
  void restart() { *this = {}; }

  // A look between samples: the driver keeps its samples for about 10 s.
  bool due(Instant now) const { return looked_ && now - *looked_ >= kLookAfter; }
  static constexpr Duration kLookWithin = std::chrono::seconds(5);

 private:
  static constexpr Duration kLookAfter = std::chrono::seconds(3);

  struct Use {
    double most = 0;
    double kernels = 0;
  };
  std::vector<ProcessShare> shares_since(Duration time) const;

  std::optional<Instant> looked_;
  std::optional<Instant> taken_;
  Instant shown_{};  // up to here the driver is shown to have sampled, or the time begins
  unsigned long long last_seen_ = 0;
  Absence refused_ = Absence::none;  // since the previous take
  std::map<pid_t, Use> sums_;        // % x s since the previous take
  bool listed_ = false;              // a process, since then
  std::vector<ProcessShare> last_;   // of the last take that had some
  Instant last_begin_{};             // when the time began that they are of
  double unlisted_ = kUnknown;       // as Reading::unlisted_util
  std::optional<Instant>
      newest_;            // when the newest of them ended; none: there are none, or no process did anything since
  Instant told_until_{};  // up to here the driver had told of at the previous take
};

}  // namespace lull
