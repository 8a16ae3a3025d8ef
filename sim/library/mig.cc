// MIG: one card cut in several. A MIG device has memory and processes of its own;
// utilisation is not supported on it, nor on a card that is cut.
#include "sim/library/client.h"

using namespace lull::sim;
namespace nvml = lull::nvml;

LULL_EXPORT Return nvmlDeviceGetMigMode(Device device, unsigned* current, unsigned* pending) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.card.mig_capable == 0) return Return::not_supported;
    const unsigned mode = look.mig() ? nvml::kMigEnabled : nvml::kMigDisabled;
    const Return first = give(current, mode);
    return first == Return::success ? give(pending, mode) : first;
  });
}
LULL_EXPORT Return nvmlDeviceGetMaxMigDeviceCount(Device device, unsigned* count) {
  return on_gpu(__func__, device, [&](const Look& look) { return give(count, look.card.mig_capable != 0 ? 7U : 0U); });
}
LULL_EXPORT Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device* mig) {
  return on_gpu(__func__, device, [&](const Look& look) {
    if (look.card.mig_capable == 0) return Return::not_supported;
    if (index >= kMaxMig) return Return::invalid_argument;
    return index >= look.card.mig_count || !look.mig() ? Return::not_found : give(mig, handle_of(look.gpu, index));
  });
}
LULL_EXPORT Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device mig, Device* device) {
  return on_device(__func__, mig, [&](const Look& look) {
    return look.target.is_mig() ? give(device, handle_of(look.gpu)) : Return::invalid_argument;
  });
}
LULL_EXPORT Return nvmlDeviceIsMigDeviceHandle(Device device, unsigned* is_mig) {
  return on_device(__func__, device, [&](const Look& look) { return give(is_mig, look.target.is_mig() ? 1U : 0U); });
}
LULL_EXPORT Return nvmlDeviceGetGpuInstanceId(Device device, unsigned* id) {
  return on_device(__func__, device, [&](const Look& look) {
    return look.target.is_mig() ? give(id, look.card.mig[look.target.mig].gpu_instance) : Return::not_supported;
  });
}
LULL_EXPORT Return nvmlDeviceGetComputeInstanceId(Device device, unsigned* id) {
  return on_device(__func__, device, [&](const Look& look) {
    return look.target.is_mig() ? give(id, look.card.mig[look.target.mig].compute_instance) : Return::not_supported;
  });
}
LULL_EXPORT Return nvmlDeviceGetAttributes_v2(Device device, nvml::DeviceAttributes* attributes) {
  return on_device(__func__, device, [&](const Look& look) {
    if (!look.target.is_mig()) return Return::not_supported;
    const MigDevice& mig = look.card.mig[look.target.mig];
    return give(attributes, nvml::DeviceAttributes{mig.multiprocessors, mig.slices, mig.slices / 2, 0, 0, 0, mig.slices,
                                                   mig.slices, mig.memory_total >> 20});
  });
}
LULL_EXPORT Return nvmlDeviceGetAttributes(Device device, nvml::DeviceAttributes* attributes) {
  return nvmlDeviceGetAttributes_v2(device, attributes);
}
