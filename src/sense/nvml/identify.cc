// Who a GPU is, and into which MIG devices it is cut.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "sense/nvml/gpu.h"

namespace lull {
namespace {

using nvml::Return;

template <std::size_t N>
std::string text(const char (&buffer)[N]) {
  return {buffer, ::strnlen(buffer, N)};
}

Return read_name(const NvmlCalls& calls, nvml::Device handle, Device& device) {
  char uuid[nvml::kUuidSize] = {};
  char name[nvml::kNameSize] = {};
  const Return code = ask(calls.DeviceGetUUID, handle, uuid, nvml::kUuidSize);
  if (code == Return::success) device.uuid = text(uuid);
  const Return named = ask(calls.DeviceGetName, handle, name, nvml::kNameSize);
  if (named == Return::success) device.name = text(name);
  return code != Return::success ? code : named;
}

void read_place(const NvmlCalls& calls, nvml::Device handle, Device& device) {
  nvml::PciInfo pci{};
  if (ask(calls.DeviceGetPciInfo_v3, handle, &pci) == Return::success) {
    device.pci = text(pci.bus_id);
    if (device.pci.empty()) device.pci = text(pci.bus_id_legacy);
  }
  unsigned minor = 0;
  if (ask(calls.DeviceGetMinorNumber, handle, &minor) == Return::success) device.minor = minor;
  unsigned cores = 0;
  unsigned mhz = 0;
  if (ask(calls.DeviceGetNumGpuCores, handle, &cores) == Return::success &&
      ask(calls.DeviceGetMaxClockInfo, handle, unsigned{nvml::kClockSm}, &mhz) == Return::success)
    device.speed = static_cast<double>(cores) * mhz;
}

NvmlPart read_part(const NvmlCalls& calls, const Device& parent, nvml::Device handle, unsigned index) {
  NvmlPart part;
  part.handle = handle;
  part.device.kind = DeviceKind::mig;
  part.device.index = parent.index;
  part.device.mig_index = index;
  part.device.pci = parent.pci;
  part.device.minor = parent.minor;
  part.device.absence = absence_of(read_name(calls, handle, part.device));
  unsigned id = 0;
  if (ask(calls.DeviceGetGpuInstanceId, handle, &id) == Return::success) part.device.gpu_instance = id;
  if (ask(calls.DeviceGetComputeInstanceId, handle, &id) == Return::success) part.device.compute_instance = id;
  return part;
}

std::vector<NvmlPart> read_parts(const NvmlCalls& calls, const NvmlGpu& gpu) {
  std::vector<NvmlPart> parts;
  unsigned most = 0;
  if (!gpu.mig_mode.value_or(false) || ask(calls.DeviceGetMaxMigDeviceCount, gpu.handle, &most) != Return::success)
    return parts;
  for (unsigned i = 0; i < most; ++i) {
    nvml::Device handle = nullptr;
    if (ask(calls.DeviceGetMigDeviceHandleByIndex, gpu.handle, i, &handle) == Return::success)
      parts.push_back(read_part(calls, gpu.device, handle, i));
  }
  return parts;
}

bool same_parts(const std::vector<NvmlPart>& a, const std::vector<NvmlPart>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (a[i].handle != b[i].handle || a[i].device != b[i].device) return false;
  return true;
}

}  // namespace

Return identify(const NvmlCalls& calls, NvmlGpu& gpu, Instant now) {
  Device device = gpu.device;
  Return code = ask(calls.DeviceGetHandleByIndex_v2, device.index, &gpu.handle);
  if (code == Return::success) {
    code = read_name(calls, gpu.handle, device);
    // A GPU without a name is still used; a lost one is not.
    if (code != Return::success && code != Return::gpu_is_lost && code != Return::reset_required &&
        !driver_gone(code) && !device.uuid.empty())
      code = Return::success;
  }
  if (code == Return::success) {
    read_place(calls, gpu.handle, device);
    unsigned current = 0;
    unsigned pending = 0;
    const Return mode = ask(calls.DeviceGetMigMode, gpu.handle, &current, &pending);
    gpu.mig_mode = mode == Return::success ? std::optional(current == nvml::kMigEnabled) : std::nullopt;
  }
  // What was known of a GPU stays known when it fails later: it is the same GPU, and its readings say so.
  if (code == Return::success || gpu.device.uuid.empty())
    device.absence = absence_of(code);
  else
    device = gpu.device;
  gpu.identified = code == Return::success;
  gpu.identified_at = now;
  if (gpu.identified && !gpu.attached_at) gpu.attached_at = now;
  if (device != gpu.device) {
    gpu.device = std::move(device);
    ++gpu.changes;
  }
  if (gpu.identified) {
    std::vector<NvmlPart> parts = read_parts(calls, gpu);
    if (!same_parts(parts, gpu.parts)) {
      gpu.parts = std::move(parts);
      ++gpu.changes;
    }
  }
  return code;
}

}  // namespace lull
