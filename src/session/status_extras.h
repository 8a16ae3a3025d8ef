#pragma once
// What `lull status` and Python's lull.status() show of a GPU beyond one snapshot: how long it has been idle, and who
// holds it through `lull pick`.

#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "view/status.h"

namespace lull {

// Since when each GPU has been seen idle without a break, by the driver before our first sample, then by us. Only what
// was seen counts: an unknown value, or a gap between samples, begins anew.
class IdleTimes {
 public:
  explicit IdleTimes(Duration every);

  void see(const Snapshot& snapshot);
  // Fills in for how long; nothing where it is not idle, or only the moment was seen.
  void tell(const Device& device, StatusExtra& extra) const;

 private:
  struct Idle {
    Instant since{};
    bool watched = false;    // for longer than a moment
    bool or_longer = false;  // we did not see it become idle
  };
  Duration longest_gap_;
  std::optional<Instant> last_;
  std::map<DeviceId, Idle> idle_;
  std::set<DeviceId> busy_;  // in the sample before
};

// What each GPU did of late, for its sparkline.
class Histories {
 public:
  void see(const Snapshot& snapshot);
  std::vector<float> of(const Device& device) const;

 private:
  std::map<DeviceId, std::vector<float>> of_;
};

// One for each of `rows`. Status is asked about GPUs: leases that cannot be read are unknown, not an error;
// `unread` then says why, to be passed on.
std::vector<StatusExtra> status_extras(const Snapshot& snapshot, std::span<const std::size_t> rows,
                                       const IdleTimes& idle, std::string& unread);

}  // namespace lull
