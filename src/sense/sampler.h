#pragma once
// The sampler keeps the newest readings of all GPUs. A sensor process makes the driver calls (sensor.h), which can
// hang, crash or end their process: whoever asks gets an answer within the deadline, and may exit or exec at any time.
// There are no threads on this side; the owner's thread watches over the sensor: in wait(), or in take() at look_by().
//
// A GPU that hangs reads `no_answer` for as long as the call lasts (Reading::unanswered) and comes back by itself; one
// whose first contact takes long reads `waking`. A sensor that is stuck as a whole is abandoned, and a new one serves
// the other GPUs. One that died costs no more than a sample.
//
// No driver is no error: the snapshot says so, and the sampler keeps looking, up to once a minute. Inventory: positions
// hold for as long as the pointer is the same; when it changes, match by UUID. A GPU that vanished keeps its place and
// reads `lost`.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"
#include "sense/source.h"

namespace lull {

// Who asks the driver where the owner of the sampler has threads (sensor.h).
struct SensorProgram {
  std::string path;                      // of `lull`; empty: there is none, we clone ourselves
  std::vector<std::string> environment;  // "NAME=value": as it was when it was safe to look
};

// From here on samplers of this program see NVIDIA's GPUs alone: for drop-ins whose originals know no others.
void see_nvidia_only();
bool sees_nvidia_only();

// What to read, and how. `util` and `mem_util` are always read.
struct SamplerOptions : Needs {
  SamplerOptions() { all_lists = false; }

  bool openers = false;       // who holds the device files: a scan of /proc
  bool process_info = false;  // join the processes with /proc into Snapshot::processes
  bool topology = false;      // how the GPUs are joined, into Snapshot::topology
  bool learned = false;       // `effort` and what it rests on: learns from each sample, and keeps it
  // As in --gpus: the others are not waited for, and where these are named by numbers not even asked (`not_asked`).
  // Empty: all.
  std::string gpus;
  std::vector<std::string> ignore_openers;
  Root root = Root::machine();
  std::string library;  // empty: $LULL_NVML, else libnvidia-ml.so.1
  bool nvidia_only = sees_nvidia_only();
  std::string dump;  // not empty: a folder for a copy of every file of a GPU that is read

  // For all GPUs together; one that takes more than a quarter of it is left behind.
  Duration deadline = std::chrono::seconds(2);
  Duration init_deadline = std::chrono::seconds(10);  // for loading and initialising
  // For each GPU's first contact, in which the driver wakes the card. GPUs do this side by side, and when all others
  // have answered no GPU is waited for much longer than they took.
  Duration attach_deadline = std::chrono::seconds(15);
  // Wait for a GPU that still wakes up when all others have answered, for as long as attach_deadline, unless it stands
  // still in the kernel. For who looks only once; others see it in a later sample.
  bool wait_for_waking = false;
  // We are going to become another program: it must not find a process of ours among its children.
  bool apart = false;
  SensorProgram program;  // we have threads: this program is our sensor, not a fork of ourselves
  // Let go of the driver when nobody has asked for so long; the next sample starts a fresh sensor. Zero: never.
  Duration lets_go_after{};

  // Only the calls that these metrics need; for a watcher that knows its rule.
  void want_only(std::span<const Metric> metrics);
  // What is asked of the driver for all this.
  Needs needs() const;
};

// A sensor that has just begun knows the moment only. Where there was a sample before, the time since then was watched
// by nobody: what would be a mean over it is unknown.
void forget_moments(Reading& reading);

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
