#pragma once
// What a sampler is to read, and how: the GPUs, the signals, the limits of time, and which process calls the driver.

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
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
  // Release the driver after so long without a request; the next sample starts a fresh sensor. Zero: never.
  Duration release_after{};

  // Only the calls that these metrics need; for a watcher that knows its rule.
  void want_only(std::span<const Metric> metrics);
  // What is asked of the driver for all this.
  Needs needs() const;
};

}  // namespace lull
