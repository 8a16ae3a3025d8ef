#pragma once
// Who is on a GPU, for the public lists and for nvidia-smi's private ones.

#include <cstddef>
#include <cstdint>

#include "sim/library/client.h"

namespace lull::sim {

// One process on one GPU or MIG device; several loads of one process count as one.
struct GpuProcess {
  std::uint32_t pid;
  std::uint32_t gpu_instance;  // nvml::kNoInstance: no MIG
  std::uint32_t compute_instance;
  std::uint64_t memory;  // nvml::kValueNotAvailable: unknown
  double util;
};

// Those of a kind (kCompute, kGraphics, kMps; 0: any) in `out`; how many there are, which may be more.
unsigned list_processes(const Look& look, std::uint32_t kind, GpuProcess* out, unsigned capacity);

// The number by which the caller sees the process of a load; 0: not at all.
std::uint32_t pid_for_caller(const Look& look, const Load& load);

// What the process is called: its first argument, or what the scenario says. False: unknown.
bool process_name(const Scene& scene, std::uint32_t pid, char* out, std::size_t size);

}  // namespace lull::sim
