#pragma once
// What is seen of each GPU, put together from everything that speaks for or against filling it: the readings and the
// rule, who computes on it, who has its device file open, leases, people. The one place where all of it meets; what
// follows from it is decided elsewhere (filling.h).

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/judge.h"
#include "fill/filling.h"
#include "fill/people.h"
#include "lease/folder.h"
#include "sense/openers.h"

namespace lull {

class Observations {
 public:
  using Owns = std::function<bool(pid_t)>;  // is it of a filler of ours, or ourselves?

  Observations(const FillSettings& settings, Owns owns);

  // Everything newer than the last time. `openers`: nothing without a scan just now.
  struct Seen {
    const Snapshot& snapshot;
    const Openers* openers = nullptr;
    const FolderState* leases = nullptr;
    std::string no_leases = {};  // why they cannot be read; empty: they can
    std::span<const ActivePerson> people = {};
    std::string no_people = {};  // likewise
  };
  // Lets the rules see the sample. Once for each.
  void observe(const Snapshot& snapshot, const Facts& machine = Facts());
  std::vector<GpuObservation> look(const Seen& seen);
  std::vector<Waiter> waiters(const FolderState& leases, const Snapshot& snapshot) const;

  // Other settings. Where they change the rule or the interval, it has to hold for its time again.
  void change(const FillSettings& settings);
  // The GPU was in use: the rule has to hold for its time again from now on.
  void disturb(const DeviceId& gpu);

 private:
  struct Known {
    Device device;
    Judge judge;
  };
  GpuObservation look_at(const Seen& seen, std::size_t place);
  void add_claims(const Seen& seen, const Device& device, const Reading& reading, GpuObservation& observation) const;
  void add_openers(const Seen& seen, std::size_t place, GpuObservation& observation) const;
  std::optional<Reason> against(const Judge& judge) const;

  FillSettings settings_;
  Owns owns_;
  std::map<DeviceId, Known> known_;
  std::shared_ptr<const Inventory> inventory_;
};

// What has to be read of each GPU.
std::vector<Metric> metrics_of(const FillSettings& settings);
// Whether this program may have this GPU open, and not every one.
bool is_ignored_on(const FillSettings& settings, const Device& device, pid_t pid);

// The places of the GPUs that this filler is meant for: those of its list, or of the first GPU's vendor, since hardly
// any program uses two; and of one that is cut into MIG devices these instead of the whole.
Result<std::vector<std::size_t>> gpus_of(const FillerSettings& filler, const Inventory& inventory);
// Its units: one on all of them, or one for each.
Result<std::vector<FillUnit>> units_of(const std::vector<FillerSettings>& fillers, const Inventory& inventory);
// For a person: the GPUs of other vendors, which no filler has that was told none. Empty: there are none.
std::string left_out(const std::vector<FillerSettings>& fillers, const Inventory& inventory);

}  // namespace lull
