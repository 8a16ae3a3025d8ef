// Init and shutdown, the driver as a whole, finding a device, event sets.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "sim/library/client.h"
#include "sim/library/processes.h"

using namespace lull::sim;
namespace nvml = lull::nvml;

LULL_EXPORT Return nvmlInit() { return start(__func__); }
LULL_EXPORT Return nvmlInit_v2() { return start(__func__); }
LULL_EXPORT Return nvmlInitWithFlags(unsigned) { return start(__func__); }
LULL_EXPORT Return nvmlShutdown() { return stop(); }

LULL_EXPORT const char* nvmlErrorString(Return code) {
  switch (code) {
    case Return::success: return "The operation was successful";
    case Return::uninitialized: return "Uninitialized";
    case Return::invalid_argument: return "Invalid Argument";
    case Return::not_supported: return "Not Supported";
    case Return::no_permission: return "Insufficient Permissions";
    case Return::already_initialized: return "Already Initialized";
    case Return::not_found: return "Not Found";
    case Return::insufficient_size: return "Insufficient Size";
    case Return::insufficient_power: return "Insufficient External Power";
    case Return::driver_not_loaded: return "Driver Not Loaded";
    case Return::timeout: return "Timeout";
    case Return::irq_issue: return "Interrupt Request Issue";
    case Return::library_not_found: return "NVML Shared Library Not Found";
    case Return::function_not_found: return "Function Not Found";
    case Return::corrupted_inforom: return "Corrupted infoROM";
    case Return::gpu_is_lost: return "GPU is lost";
    case Return::reset_required: return "GPU requires reset";
    case Return::operating_system: return "GPU access blocked by the operating system";
    case Return::lib_rm_version_mismatch: return "Driver/library version mismatch";
    case Return::in_use: return "In use by another client";
    case Return::memory: return "Insufficient Memory";
    case Return::no_data: return "No data";
    case Return::insufficient_resources: return "Insufficient Resources";
    case Return::argument_version_mismatch: return "Argument version mismatch";
    case Return::deprecated: return "Deprecated";
    default: return "Unknown Error";
  }
}

LULL_EXPORT Return nvmlSystemGetDriverVersion(char* version, unsigned length) {
  return on_driver(__func__,
                   [&](const Look& look) { return give_text(version, length, look.scene.state.driver_version); });
}
LULL_EXPORT Return nvmlSystemGetNVMLVersion(char* version, unsigned length) {
  return on_driver(__func__,
                   [&](const Look& look) { return give_text(version, length, look.scene.state.nvml_version); });
}
LULL_EXPORT Return nvmlSystemGetCudaDriverVersion(int* version) {
  return on_driver(__func__, [&](const Look& look) { return give(version, look.scene.state.cuda_version); });
}
LULL_EXPORT Return nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return on_driver(__func__, [&](const Look& look) { return give(version, look.scene.state.cuda_version); });
}
LULL_EXPORT Return nvmlUnitGetCount(unsigned* count) {
  return on_driver(__func__, [&](const Look&) { return give(count, 0); });
}
LULL_EXPORT Return nvmlGetExcludedDeviceCount(unsigned* count) {
  return on_driver(__func__, [&](const Look&) { return give(count, 0); });
}

LULL_EXPORT Return nvmlSystemGetProcessName(unsigned pid, char* name, unsigned length) {
  char text[1024];
  return on_driver(__func__, [&](const Look& look) {
    if (name == nullptr || length == 0) return Return::invalid_argument;
    if (!process_name(look.scene, pid, text, sizeof text)) return Return::not_found;
    std::snprintf(name, length, "%s", text);  // the real one cuts it too
    return Return::success;
  });
}

// ---- finding a device -----------------------------------------------------------
namespace {

Return count_gpus(const char* function, unsigned* count) {
  return on_driver(function, [&](const Look& look) { return give(count, look.scene.state.nvml_count); });
}

// Finding a lost GPU fails as any other call about it.
template <class Matches>
Return find(const char* function, Device* device, Matches&& matches) {
  Target found;
  const Return looked = on_driver(function, [&](const Look& look) {
    found = Target{};
    const State& state = look.scene.state;
    for (unsigned gpu = 0; gpu < state.nvml_count && found.gpu < 0; ++gpu) {
      if (matches(state.gpus[gpu].uuid, state.gpus[gpu])) found = {static_cast<std::int32_t>(gpu), kNone};
      for (unsigned mig = 0; mig < state.gpus[gpu].mig_count && found.gpu < 0; ++mig)
        if (matches(state.gpus[gpu].mig[mig].uuid, state.gpus[gpu])) found = {static_cast<std::int32_t>(gpu), mig};
    }
    return Return::success;
  });
  if (looked != Return::success) return looked;
  if (found.gpu < 0) return Return::not_found;
  return on_lookup(function, found, [&](const Look& look) {
    if (found.is_mig() && !look.mig()) return Return::not_found;
    return give(device, handle_of(static_cast<unsigned>(found.gpu), found.mig));
  });
}

// "00000000:0B:00.0", "0000:0b:00.0", "0:b:0.0" name one card.
bool same_bus(const char* text, const Gpu& gpu) {
  unsigned domain = 0;
  unsigned bus = 0;
  unsigned slot = 0;
  if (std::sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3) return false;
  return domain == gpu.pci_domain && bus == gpu.pci_bus && slot == gpu.pci_device;
}

}  // namespace

LULL_EXPORT Return nvmlDeviceGetCount(unsigned* count) { return count_gpus(__func__, count); }
LULL_EXPORT Return nvmlDeviceGetCount_v2(unsigned* count) { return count_gpus(__func__, count); }

LULL_EXPORT Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  if (index >= kMaxGpus) return on_driver(__func__, [](const Look&) { return Return::invalid_argument; });
  return on_lookup(__func__, {static_cast<std::int32_t>(index), kNone}, [&](const Look& look) {
    return index >= look.scene.state.nvml_count ? Return::invalid_argument : give(device, handle_of(index));
  });
}
LULL_EXPORT Return nvmlDeviceGetHandleByIndex(unsigned index, Device* device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

LULL_EXPORT Return nvmlDeviceGetHandleByUUID(const char* uuid, Device* device) {
  if (uuid == nullptr) return on_driver(__func__, [](const Look&) { return Return::invalid_argument; });
  return find(__func__, device, [&](const char* theirs, const Gpu&) { return std::strcmp(theirs, uuid) == 0; });
}
LULL_EXPORT Return nvmlDeviceGetHandleBySerial(const char* serial, Device* device) {
  if (serial == nullptr) return on_driver(__func__, [](const Look&) { return Return::invalid_argument; });
  return find(__func__, device, [&](const char*, const Gpu& gpu) { return std::strcmp(gpu.serial, serial) == 0; });
}
LULL_EXPORT Return nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Device* device) {
  if (bus_id == nullptr) return on_driver(__func__, [](const Look&) { return Return::invalid_argument; });
  return find(__func__, device, [&](const char*, const Gpu& gpu) { return same_bus(bus_id, gpu); });
}
LULL_EXPORT Return nvmlDeviceGetHandleByPciBusId(const char* bus_id, Device* device) {
  return nvmlDeviceGetHandleByPciBusId_v2(bus_id, device);
}

// ---- events: sets can be made and waited on; nothing ever happens ---------------------
LULL_EXPORT Return nvmlEventSetCreate(nvml::EventSet* set) {
  if (set == nullptr) return on_driver(__func__, [](const Look&) { return Return::invalid_argument; });
  const Return result = on_driver(__func__, [](const Look&) { return Return::success; });
  if (result != Return::success) return result;
  void* made = std::calloc(1, 16);
  if (made == nullptr) return Return::memory;
  *set = static_cast<nvml::EventSet>(made);
  return result;
}
LULL_EXPORT Return nvmlEventSetFree(nvml::EventSet set) {
  const Return result = on_driver(__func__, [&](const Look&) { return Return::success; });
  if (result == Return::success) std::free(set);
  return result;
}
LULL_EXPORT Return nvmlDeviceGetSupportedEventTypes(Device device, unsigned long long* types) {
  return on_gpu(__func__, device, [&](const Look&) { return give(types, nvml::kEventAll); });
}
LULL_EXPORT Return nvmlDeviceRegisterEvents(Device device, unsigned long long, nvml::EventSet set) {
  return on_gpu(__func__, device,
                [&](const Look&) { return set == nullptr ? Return::invalid_argument : Return::success; });
}

namespace {

Return wait_for_event(const char* function, nvml::EventSet set, unsigned timeout_ms) {
  const Return result =
      on_driver(function, [&](const Look&) { return set == nullptr ? Return::invalid_argument : Return::timeout; });
  if (result != Return::timeout) return result;
  timespec left{timeout_ms / 1000, static_cast<long>(timeout_ms % 1000) * 1'000'000};
  while (::nanosleep(&left, &left) != 0) {
  }
  return result;
}

}  // namespace

LULL_EXPORT Return nvmlEventSetWait(nvml::EventSet set, nvml::EventData*, unsigned timeout_ms) {
  return wait_for_event(__func__, set, timeout_ms);
}
LULL_EXPORT Return nvmlEventSetWait_v2(nvml::EventSet set, nvml::EventData*, unsigned timeout_ms) {
  return wait_for_event(__func__, set, timeout_ms);
}
