// nvidia-smi's private table: an array of functions that it asks for by a GUID.
// The first slot is the table's size in bytes; slot numbers are NVIDIA's own, as
// published for 580, and hold for 535. What is not served answers NOT_SUPPORTED
// and writes nothing: the arguments of other slots are not known.
#include <pthread.h>

#include <algorithm>

#include "sim/library/client.h"
#include "sim/library/processes.h"

using namespace lull::sim;
namespace nvml = lull::nvml;

extern "C" Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device);
extern "C" Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* device);
extern "C" Return nvmlDeviceGetTopologyCommonAncestor(Device one, Device other, unsigned* level);

namespace {

constexpr unsigned kSlotCount = 0x1000 / sizeof(void*);
constexpr unsigned char kGuid[16] = {0xc4, 0xfe, 0x3e, 0x6c, 0xc9, 0x8f, 0x6c, 0x4e,
                                     0xa3, 0x27, 0xee, 0x69, 0x6e, 0x12, 0xf7, 0xc4};

// An entry of the private process lists: 4128 bytes.
struct Entry {
  std::uint32_t pid;
  std::uint32_t unused1;
  std::uint64_t memory;
  std::uint32_t gpu_instance;
  std::uint32_t compute_instance;
  std::uint64_t unused2;
  char name[4096];
};
static_assert(sizeof(Entry) == 4128 && offsetof(Entry, memory) == 8 && offsetof(Entry, gpu_instance) == 16 &&
              offsetof(Entry, name) == 32);

Return entries(const char* function, Device device, std::uint32_t kind, unsigned* count, Entry* out) {
  if (count == nullptr) return Return::invalid_argument;
  const unsigned capacity = out == nullptr ? 0 : *count;
  return on_device(function, device, [&](const Look& look) {
    if (look.has(kNoProcessLists)) return Return::not_supported;
    GpuProcess listed[kMaxLoads];
    const unsigned found = std::min(list_processes(look, kind, listed, kMaxLoads), kMaxLoads);
    *count = found;
    if (found > capacity) return Return::insufficient_size;
    for (unsigned i = 0; i < found; ++i) {
      out[i].pid = listed[i].pid;
      out[i].memory = listed[i].memory;
      out[i].gpu_instance = listed[i].gpu_instance;
      out[i].compute_instance = listed[i].compute_instance;
      if (!process_name(look.scene, listed[i].pid, out[i].name, sizeof out[i].name))
        std::strcpy(out[i].name, "[Not Found]");
    }
    return Return::success;
  });
}

// nvidia-smi prints C and G for the lists that name a process; M+C for one that the MPS list names as well.
// The names are those of the public calls that these stand for, for faults and the log.
Return compute_list(Device device, unsigned* count, Entry* out) {
  return entries("nvmlDeviceGetComputeRunningProcesses_v3", device, kCompute | kMps, count, out);
}
Return mps_list(Device device, unsigned* count, Entry* out) {
  return entries("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, kMps, count, out);
}
Return graphics_list(Device device, unsigned* count, Entry* out) {
  return entries("nvmlDeviceGetGraphicsRunningProcesses_v3", device, kGraphics, count, out);
}
Return monitorable(Device device, unsigned* yes) {
  return on_gpu("nvmlDeviceGetUtilizationRates", device, [&](const Look&) { return give(yes, 1U); });
}
Return host_generation(Device device, unsigned* generation) {
  return on_gpu("nvmlDeviceGetMaxPcieLinkGeneration", device,
                [&](const Look& look) { return give(generation, look.card.pcie_generation); });
}
Return by_index(unsigned index, Device* device) { return nvmlDeviceGetHandleByIndex_v2(index, device); }
// How far apart two PCI devices are: 0 PIX, 1 PXB, 2 PHB, 3 NODE, 4 SYS. The other may be a network card of the real
// machine, which is far from anything simulated.
Return distance(const char* one, const char* other, unsigned* rank) {
  unsigned level = nvml::kTopologySystem;
  Device from = nullptr;
  Device to = nullptr;
  Return result = nvmlDeviceGetHandleByPciBusId_v2(one, &from);
  if (result == Return::success) result = nvmlDeviceGetHandleByPciBusId_v2(other, &to);
  if (result == Return::success) result = nvmlDeviceGetTopologyCommonAncestor(from, to, &level);
  if (result != Return::success && result != Return::not_found) return result;
  return give(rank, level == nvml::kTopologyInternal ? 0U : level / nvml::kTopologySingle - 1U);
}
Return ignored() { return Return::success; }
Return unserved() { return Return::not_supported; }

const void* slots[kSlotCount];

void fill_table() {
  const auto at = [](unsigned index, auto* function) { slots[index] = reinterpret_cast<const void*>(function); };
  for (unsigned i = 1; i < kSlotCount; ++i) at(i, unserved);
  // The first tells how large the table is.
  // NOLINTNEXTLINE(performance-no-int-to-ptr): it is read as a number
  slots[0] = reinterpret_cast<const void*>(std::uintptr_t{sizeof slots});
  at(23, distance);
  at(26, ignored);  // debug output
  at(72, monitorable);
  at(81, by_index);
  at(213, compute_list);
  at(214, mps_list);
  at(215, graphics_list);
  at(230, host_generation);
}

}  // namespace

LULL_EXPORT Return nvmlInternalGetExportTable(const void** out, const void* guid) {
  if (out == nullptr || guid == nullptr) return Return::invalid_argument;
  if (std::memcmp(guid, kGuid, sizeof kGuid) != 0) return Return::not_found;
  static constinit pthread_once_t once = PTHREAD_ONCE_INIT;
  ::pthread_once(&once, fill_table);
  *out = static_cast<const void*>(slots);
  return Return::success;
}
