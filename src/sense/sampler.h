#pragma once
// The sampler keeps the newest readings of all GPUs. Calls into a driver can hang in the kernel, crash or end the
// process that makes them, so a process of its own makes them (sensor.h): whoever asks gets an answer within the
// deadline, and may exit or exec at any time, whatever the driver does. There are no threads on this side; the owner's
// own thread watches over the sensor: in wait(), or in take() at the time of look_by().
//
// A GPU that hangs reads `no_answer` for as long as the call lasts (Reading::unanswered says how long that has been)
// and comes back by itself when the call returns; the others go on. One whose first contact takes long reads `waking`
// for as long as that may take. A sensor that is stuck as a whole is abandoned, a
// fresh one serves the other GPUs. One that died (the driver's library crashed or called exit) costs no more than a
// sample.
//
// No driver is no error: the snapshot says so, and the sampler keeps looking, after 1 s and then less and less often,
// up to once a minute; while the kernel's driver is not loaded the library is not even opened. Inventory: positions
// hold for as long as the pointer is the same; when it changes, match by UUID. A GPU that vanished keeps its place and
// reads `lost`.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

// Who asks the driver where the owner of the sampler has threads (sensor_program.h).
struct SensorProgram {
  std::string path;                      // of `lull`; empty: there is none, we clone ourselves
  std::vector<std::string> environment;  // "NAME=value": as it was when it was safe to look
};

struct SamplerOptions {
  // What to read. `util` and `mem_util` are always there.
  bool memory = true;
  bool power = true;
  bool details = true;       // temperature, fan, clocks, pstate, throttle reasons
  bool tenants = true;       // processes on the GPU, and `procs`
  bool all_lists = false;    // with tenants: those that only draw, too
  bool pcie = false;         // a real driver takes 40 ms a GPU for it
  bool openers = false;      // who holds the device files: a scan of /proc
  bool processes = false;    // join the tenants with /proc into Snapshot::processes
  bool idle_before = false;  // how long a GPU was idle before our first sample, as far as the driver remembers
  bool topology = false;     // how the GPUs are joined, into Snapshot::topology
  // As in --gpus: the others are not waited for, and where these are named by numbers not even asked (`not_asked`).
  // Empty: all.
  std::string gpus = {};
  std::vector<std::string> ignore_openers;
  Duration lists_every = std::chrono::seconds(1);  // the driver's process lists cost milliseconds: no more often
  Root root = Root::machine();

  std::string library;  // empty: $LULL_NVML, else libnvidia-ml.so.1
  // For all GPUs together; one that takes more than a quarter of it is left behind.
  Duration deadline = std::chrono::seconds(2);
  // For loading and initialising.
  Duration init_deadline = std::chrono::seconds(10);
  // For each GPU's first contact, in which the driver wakes the card. GPUs do this side by side, and when all others
  // have answered no GPU is waited for much longer than they took.
  Duration attach_deadline = std::chrono::seconds(15);
  // Wait for a GPU that still wakes up when all others have answered, for as long as attach_deadline, unless it stands
  // still in the kernel. For who looks only once; others see it in a later sample.
  bool wait_for_waking = false;
  // We are going to become another program: it must not find a process of ours among its children.
  bool apart = false;
  // We have threads: this program is our sensor, not a clone of ourselves.
  SensorProgram program = {};
  // Let go of the driver when nobody has asked for so long; the next sample starts a fresh sensor. Zero: never.
  Duration lets_go_after{};
  // There will be one sample only and the program ends soon after: prepare nothing for a second one.
  bool once = false;

  // Only the calls that these metrics need; for a watcher that knows its rule.
  void want_only(std::span<const Metric> metrics);
};

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
  void let_go();

 private:
  struct Core;
  explicit Sampler(std::unique_ptr<Core> core);
  std::unique_ptr<Core> core_;
};

}  // namespace lull
