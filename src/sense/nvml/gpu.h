#pragma once
// One GPU as the library knows it: its handle, who it is, its MIG devices, and what has to be remembered from one
// sample to the next. Who it is gets read once (and again after it was lost); the values every time. Whatever fails
// costs only itself and leaves its reason in the reading. A NvmlGpu is used by one thread at a time.

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"
#include "sense/nvml/gpm_meter.h"
#include "sense/nvml/library.h"
#include "sense/nvml/meters.h"
#include "sense/nvml/share_meter.h"
#include "sense/proof.h"
#include "sense/source.h"

namespace lull {

// The processes on a device when they were last listed.
struct GpuProcessList {
  std::optional<Instant> at;
  Absence absence = Absence::not_asked;  // none: `processes` are known
  bool all = false;                      // those that draw included
  std::vector<GpuProcess> processes;
  ProcessProofs proofs;
};

// Which call for memory the driver has.
enum class MemoryCall : std::uint8_t { untried, second, first };

// What one device needs to remember.
struct NvmlMemory {
  UtilMeter util;
  Ring ring;
  PowerMeter power;
  ShareMeter shares;
  GpmMeter gpm;
  GpuProcessList list;
  MemoryCall memory_call = MemoryCall::untried;
  bool module_asked = false;
  bool power_wanted = false;  // by the last sample, so looks need it
  bool shares_wanted = false;
};

// Room for the driver's answers, and what else one thread needs to sample its GPUs.
struct NvmlBuffers {
  std::vector<nvml::Sample> samples;
  std::vector<nvml::Process> processes;
  std::vector<nvml::ProcessV1> old_processes;
  std::vector<nvml::ProcessUtilization> shares;
  Root root = Root::machine();
  const Clock* clock = nullptr;         // null: the system's
  std::optional<bool> first_namespace;  // of pids, where the driver shows all processes; found out once
  std::function<void(Duration)> pause;  // null: sleeps
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
  std::optional<Instant> attached_at;  // when it first answered
  std::optional<Instant> seldom_at;    // when what seldom changes was last asked:
  std::optional<bool> display_active;
  std::optional<bool> persistence;
  unsigned changes = 0;  // counts up whenever device or parts changed
  NvmlMemory memory;
};

// Reads who it is. Needs no handle before. A GPU that cannot be read keeps what was known of it.
nvml::Return identify(const NvmlCalls& calls, NvmlGpu& gpu, Instant now);

// Identifies the GPU where that is due, then reads its values.
void sample_gpu(const NvmlCalls& calls, NvmlGpu& gpu, const Needs& needs, Instant now, NvmlBuffers& buffers,
                Answer& answer);

// Between samples: utilisation, and power where the card does not count its energy. A few microseconds; does
// nothing on a GPU that was not sampled yet. What fails is the next sample's to tell.
void look_gpu(const NvmlCalls& calls, NvmlGpu& gpu, Instant now, NvmlBuffers& buffers);

// How soon after the last sample or look the next must come (a sample is a look as well).
Duration look_within(const NvmlGpu& gpu);

}  // namespace lull
