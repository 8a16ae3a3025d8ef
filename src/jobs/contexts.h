#pragma once
// On which GPUs the processes of a job have a context, as far as that has been seen. A GPU
// of the job stays one until a successful look at its processes shows none of the job's: a
// list that cannot be read, a GPU that is lost, hangs or has vanished, a driver that was
// reloaded say nothing, and what says nothing takes nothing away.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "gpu/snapshot.h"
#include "jobs/dark_cards.h"

namespace lull {

class JobContexts {
 public:
  using IsOurs = std::function<bool(pid_t)>;  // a process of the job

  explicit JobContexts(Root root = {}) : root_(std::move(root)), dark_cards_(root_) {}

  void look(const Snapshot& snapshot, const IsOurs& is_ours);
  void forget() { *this = JobContexts(root_); }  // a new job

  // Devices of the newest inventory first, in its order; then those that are not in it any more.
  std::vector<Device> held() const;
  // Those of which it cannot be told now whether the job is there as well: their processes could not be looked at, or
  // some of them cannot be placed.
  std::vector<Device> unseen() const;
  // Those that say "no permission" and have never said anything else. They are not for us where nobody of the job has
  // opened them; without a job, where we may not open them either and nobody is seen to hold them.
  std::vector<Device> closed() const;
  // Those that say so and count all the same.
  std::vector<Device> silent() const;
  bool ever() const { return ever_; }  // the job has had a context
  // Not one list of processes could be read so far: that none is known to be the job's means nothing.
  bool blind() const;

  // One of the job's processes with a context is stopped (SIGSTOP; with `traced` also by a debugger).
  std::optional<ProcessEntry> stopped(bool traced) const;
  // The cgroup of one of them is frozen (`docker pause`), or that of one of these.
  bool frozen(std::vector<pid_t> others) const;

 private:
  using Name = std::pair<pid_t, std::uint64_t>;  // pid and start time
  struct Place {
    Device device;
    bool listed = false;     // in the newest inventory
    bool held = false;       // the job has a context there
    bool looked = false;     // its processes could be read at least once
    bool settled = false;    // now: whether the job is there is known
    bool reachable = false;  // it was neither lost nor closed to us all the time
    bool opened = false;     // it was, and a process of the job holds its device file; without a job: see closed()
    bool forbidden = false;  // now: no permission
    std::vector<Name> ours;  // of the job's processes, when last seen
  };
  void use(const Inventory& inventory);
  void look_at(Place& place, const Reading& reading, const IsOurs& is_ours);
  void look_at_files(Instant at, const IsOurs& is_ours);
  void look_at_closed(Instant at);

  Root root_;
  std::shared_ptr<const Inventory> inventory_;
  std::vector<Place> places_;  // one for each device of the inventory, then those that vanished
  bool ever_ = false;
  DarkCards dark_cards_;
};

}  // namespace lull
