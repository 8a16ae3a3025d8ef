#pragma once
// One GPU as the library knows it: its handle, who it is, its MIG devices, and
// what has to be remembered from one sample to the next. Who it is gets read
// once (and again after it was lost); the values every time. Whatever fails
// costs only itself and leaves its reason in the reading.
//
// A NvmlGpu is used by one thread at a time: the one that samples it.

#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "sense/nvml/library.h"
#include "sense/nvml/means.h"
#include "sense/source.h"

namespace lull {

using Wanted = Needs;
using NvmlAnswer = Answer;

// What one device needs to remember.
struct NvmlMemory {
  bool buffer_known = false;                // we know where the utilisation buffer stood at the previous sample:
  unsigned long long newest_sample_us = 0;  // its newest entry then; 0: it was empty
  Instant util_at{};                        // when util was last read
  unsigned dry_while_busy = 0;              // looks in a row that found the buffer empty though work is done
  EnergyMeter energy;
};

// Room for the driver's answers; one for all GPUs that a thread samples, so that it stays near.
struct NvmlRoom {
  std::vector<nvml::Sample> samples;
  std::vector<unsigned long long> distances;
  std::vector<nvml::Process> processes;
  std::vector<nvml::ProcessV1> old_processes;
};

struct NvmlPart {
  nvml::Device handle = nullptr;
  Device device;
  NvmlMemory memory;
};

struct NvmlGpu {
  explicit NvmlGpu(unsigned index) { device.index = index; }

  nvml::Device handle = nullptr;
  Device device;            // absence: why it could not be identified
  bool identified = false;  // device is complete
  std::optional<bool> mig_mode;
  std::vector<NvmlPart> parts;  // MIG devices
  Instant identified_at{};
  unsigned changes = 0;  // counts up whenever device or parts changed
  NvmlMemory memory;
};

// Reads who it is. Needs no handle before. A GPU that cannot be read keeps what was known of it.
nvml::Return identify(const NvmlCalls& calls, NvmlGpu& gpu, Instant now);

// Identifies the GPU where that is due, then reads its values.
void sample_gpu(const NvmlCalls& calls, NvmlGpu& gpu, const Needs& needs, Instant now, NvmlRoom& room, Answer& answer);

}  // namespace lull
