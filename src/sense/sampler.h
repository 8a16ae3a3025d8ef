#pragma once
// The sampler keeps the newest readings of all GPUs. Calls into a driver can
// hang in the kernel, so they are made on a thread of their own: whoever asks
// gets an answer within the deadline, whatever the driver does. The owner's own
// thread watches over it: in wait(), or in take() at the time of look_by().
//
// One worker samples the GPUs in order. If it hangs at GPU k, it is left there:
// a fresh worker takes over the others, GPU k reads `no_answer` for as long as
// the call lasts (Reading::unanswered says how long that has been) and comes
// back by itself when the call returns. There is never more than one stuck
// thread a GPU. All of them share one state that lives as long as the last of
// them, and none is waited for when the program ends.
//
// No driver is no error: the snapshot says so, and the sampler keeps looking
// (about once a second). Inventory: positions hold for as long as the pointer is
// the same; when it changes, match by UUID. A GPU that vanished keeps its place
// and reads `lost`.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

struct SamplerOptions {
  // What to read. `util` and `mem_util` are always there.
  bool memory = true;
  bool power = true;
  bool details = true;       // temperature, fan, clocks, pstate, throttle reasons
  bool tenants = true;       // processes on the GPU, and `procs`
  bool pcie = false;         // a real driver takes 40 ms a GPU for it
  bool openers = false;      // who holds the device files: a scan of /proc
  bool processes = false;    // join the tenants with /proc into Snapshot::processes
  bool idle_before = false;  // how long a GPU was idle before our first sample, as far as the driver remembers
  std::vector<std::string> ignore_openers;
  Root root = Root::machine();

  std::string library;  // empty: $LULL_NVML, else libnvidia-ml.so.1
  // For all GPUs together; one that takes more than a quarter of it is left behind.
  Duration deadline = std::chrono::seconds(2);
  // For loading and initialising, which takes seconds on machines whose GPUs sleep.
  Duration init_deadline = std::chrono::seconds(10);
  // There will be one sample only and the program ends soon after: prepare nothing for a second one.
  bool once = false;

  // Only the calls that these metrics need; for a watcher that knows its rule.
  void want_only(std::span<const Metric> metrics);
};

class Sampler {
 public:
  // Never fails and does not wait: nothing is loaded before the first request.
  static std::unique_ptr<Sampler> start(SamplerOptions options);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();

  // Asks for a sample. Cheap; ignored while one is under way.
  void request();
  // Waits until the sample that was asked for is complete (or the deadline has passed) and takes it.
  void wait(Snapshot& into);
  // Both.
  void sample(Snapshot& into);
  Snapshot sample();

  // For those who wait for other things as well. Readable when a sample is complete; take() clears it.
  int event_fd();
  // If that has not come by then, take() finds out who hangs, and goes on without them. Instant::max():
  // nothing is under way.
  Instant look_by() const;
  // False: there is none that was not taken before; `into` is left as it was. True: its old memory is used again.
  bool take(Snapshot& into);

  // How many threads hang in the driver now.
  std::size_t stuck() const;

 private:
  struct Core;
  explicit Sampler(std::shared_ptr<Core> core) : core_(std::move(core)) {}
  std::shared_ptr<Core> core_;
};

}  // namespace lull
