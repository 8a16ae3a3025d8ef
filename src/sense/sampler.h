#pragma once
// The sampler keeps the newest readings of all GPUs. A sensor process makes the driver calls (sensor.h), which can
// hang, crash or end their process: whoever asks gets an answer within the deadline, and may exit or exec at any time.
// There are no threads on this side; the owner's thread watches over the sensor: in wait(), or in take() at look_by().
//
// A GPU that hangs reads `no_answer` for as long as the call lasts (Reading::unanswered) and comes back by itself; one
// whose first contact takes long reads `waking`. A sensor that is stuck as a whole is abandoned, and a new one serves
// the other GPUs. One that died costs no more than a sample.
//
// A missing driver is not an error: the snapshot says so, and the sampler keeps looking, up to once a minute.
// Inventory: positions hold for as long as the pointer is the same; when it changes, match by UUID. A GPU that vanished
// keeps its place and reads `lost`.

#include <memory>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "sense/sampler_options.h"

namespace lull {

class Sampler {
 public:
  // Never fails and does not wait: nothing is started before the first request.
  static std::unique_ptr<Sampler> start(SamplerOptions options);
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;
  ~Sampler();

  // Asks for a sample. Cheap; ignored while one is under way. `fresh_lists`: with process lists of now, however new the
  // last ones are (lists_every).
  void request(bool fresh_lists = false);
  // Waits until the sample that was asked for is complete (or the deadline has passed) and takes it.
  void wait(Snapshot& into);
  // The same, but for no longer than this. False: it is still under way, and `into` is left as it was.
  bool wait_for(Snapshot& into, Duration limit);
  // Asks and waits.
  void sample(Snapshot& into);
  Snapshot sample();

  // For those who wait for other things as well. Readable when a sample is complete; take() clears it.
  int event_fd();
  // If that has not come by then, take() finds out who hangs, and goes on without them. Instant::max():
  // nothing is under way.
  Instant look_by() const;
  // False: there is none that was not taken before; `into` is left as it was. True: its old memory is used again.
  bool take(Snapshot& into);

  // Lets go of the driver for a minute, so that a GPU can be reset, MIG changed, the driver unloaded. SIGUSR1 to the
  // sensor process does the same.
  void release_driver();

 private:
  struct Core;
  explicit Sampler(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace lull
