#pragma once
// The calls of NVML that lull makes and its simulator answers, as a list and as function types.

#include "nvml/abi.h"

namespace lull::nvml {

// X(name without "nvml", arguments). All return Return but ErrorString.
#define LULL_NVML_CALLS(X)                                                                                \
  X(Init_v2, (void))                                                                                      \
  X(InitWithFlags, (unsigned flags))                                                                      \
  X(Shutdown, (void))                                                                                     \
  X(SystemGetDriverVersion, (char* version, unsigned length))                                             \
  X(SystemGetNVMLVersion, (char* version, unsigned length))                                               \
  X(SystemGetCudaDriverVersion_v2, (int* version))                                                        \
  X(SystemGetProcessName, (unsigned pid, char* name, unsigned length))                                    \
  X(DeviceGetCount_v2, (unsigned* count))                                                                 \
  X(DeviceGetHandleByIndex_v2, (unsigned index, Device* device))                                          \
  X(DeviceGetHandleByUUID, (const char* uuid, Device* device))                                            \
  X(DeviceGetHandleByPciBusId_v2, (const char* bus_id, Device* device))                                   \
  X(DeviceGetIndex, (Device device, unsigned* index))                                                     \
  X(DeviceGetName, (Device device, char* name, unsigned length))                                          \
  X(DeviceGetUUID, (Device device, char* uuid, unsigned length))                                          \
  X(DeviceGetMinorNumber, (Device device, unsigned* minor))                                               \
  X(DeviceGetPciInfo_v3, (Device device, PciInfo * pci))                                                  \
  X(DeviceGetArchitecture, (Device device, unsigned* architecture))                                       \
  X(DeviceGetCudaComputeCapability, (Device device, int* major, int* minor))                              \
  X(DeviceGetUtilizationRates, (Device device, Utilization * utilization))                                \
  X(DeviceGetSamples, (Device device, unsigned type, unsigned long long last_seen, unsigned* value_type,  \
                       unsigned* count, Sample* samples))                                                 \
  X(DeviceGetEncoderUtilization, (Device device, unsigned* utilization, unsigned* period_us))             \
  X(DeviceGetDecoderUtilization, (Device device, unsigned* utilization, unsigned* period_us))             \
  X(DeviceGetMemoryInfo, (Device device, Memory * memory))                                                \
  X(DeviceGetMemoryInfo_v2, (Device device, MemoryV2 * memory))                                           \
  X(DeviceGetPowerUsage, (Device device, unsigned* milliwatts))                                           \
  X(DeviceGetEnforcedPowerLimit, (Device device, unsigned* milliwatts))                                   \
  X(DeviceGetPowerManagementLimit, (Device device, unsigned* milliwatts))                                 \
  X(DeviceGetTotalEnergyConsumption, (Device device, unsigned long long* millijoules))                    \
  X(DeviceGetTemperature, (Device device, unsigned sensor, unsigned* celsius))                            \
  X(DeviceGetTemperatureThreshold, (Device device, unsigned threshold, unsigned* celsius))                \
  X(DeviceGetFanSpeed, (Device device, unsigned* percent))                                                \
  X(DeviceGetClockInfo, (Device device, unsigned type, unsigned* mhz))                                    \
  X(DeviceGetMaxClockInfo, (Device device, unsigned type, unsigned* mhz))                                 \
  X(DeviceGetPerformanceState, (Device device, unsigned* pstate))                                         \
  X(DeviceGetCurrentClocksThrottleReasons, (Device device, unsigned long long* reasons))                  \
  X(DeviceGetCurrentClocksEventReasons, (Device device, unsigned long long* reasons))                     \
  X(DeviceGetPcieThroughput, (Device device, unsigned counter, unsigned* kib_per_second))                 \
  X(DeviceGetCurrPcieLinkGeneration, (Device device, unsigned* generation))                               \
  X(DeviceGetCurrPcieLinkWidth, (Device device, unsigned* width))                                         \
  X(DeviceGetMaxPcieLinkGeneration, (Device device, unsigned* generation))                                \
  X(DeviceGetMaxPcieLinkWidth, (Device device, unsigned* width))                                          \
  X(DeviceGetComputeMode, (Device device, unsigned* mode))                                                \
  X(DeviceGetPersistenceMode, (Device device, unsigned* mode))                                            \
  X(DeviceGetDisplayActive, (Device device, unsigned* active))                                            \
  X(DeviceGetDisplayMode, (Device device, unsigned* mode))                                                \
  X(DeviceGetComputeRunningProcesses, (Device device, unsigned* count, ProcessV1* processes))             \
  X(DeviceGetComputeRunningProcesses_v2, (Device device, unsigned* count, Process* processes))            \
  X(DeviceGetComputeRunningProcesses_v3, (Device device, unsigned* count, Process* processes))            \
  X(DeviceGetGraphicsRunningProcesses, (Device device, unsigned* count, ProcessV1* processes))            \
  X(DeviceGetGraphicsRunningProcesses_v2, (Device device, unsigned* count, Process* processes))           \
  X(DeviceGetGraphicsRunningProcesses_v3, (Device device, unsigned* count, Process* processes))           \
  X(DeviceGetMPSComputeRunningProcesses, (Device device, unsigned* count, ProcessV1* processes))          \
  X(DeviceGetMPSComputeRunningProcesses_v2, (Device device, unsigned* count, Process* processes))         \
  X(DeviceGetMPSComputeRunningProcesses_v3, (Device device, unsigned* count, Process* processes))         \
  X(DeviceGetProcessUtilization,                                                                          \
    (Device device, ProcessUtilization * utilization, unsigned* count, unsigned long long last_seen))     \
  X(DeviceGetFieldValues, (Device device, int count, FieldValue* values))                                 \
  X(DeviceGetMigMode, (Device device, unsigned* current, unsigned* pending))                              \
  X(DeviceGetMaxMigDeviceCount, (Device device, unsigned* count))                                         \
  X(DeviceGetMigDeviceHandleByIndex, (Device device, unsigned index, Device* mig))                        \
  X(DeviceGetDeviceHandleFromMigDeviceHandle, (Device mig, Device * device))                              \
  X(DeviceIsMigDeviceHandle, (Device device, unsigned* is_mig))                                           \
  X(DeviceGetGpuInstanceId, (Device device, unsigned* id))                                                \
  X(DeviceGetComputeInstanceId, (Device device, unsigned* id))                                            \
  X(DeviceGetAttributes_v2, (Device device, DeviceAttributes * attributes))                               \
  X(DeviceGetTopologyCommonAncestor, (Device one, Device other, unsigned* level))                         \
  X(DeviceGetTopologyNearestGpus, (Device device, unsigned level, unsigned* count, Device* devices))      \
  X(DeviceGetP2PStatus, (Device one, Device other, unsigned index, unsigned* status))                     \
  X(DeviceGetNvLinkState, (Device device, unsigned link, unsigned* active))                               \
  X(DeviceGetNvLinkRemotePciInfo_v2, (Device device, unsigned link, PciInfo* pci))                        \
  X(DeviceGetNvLinkRemoteDeviceType, (Device device, unsigned link, unsigned* type))                      \
  X(DeviceGetNvLinkVersion, (Device device, unsigned link, unsigned* version))                            \
  X(DeviceGetNvLinkCapability, (Device device, unsigned link, unsigned capability, unsigned* result))     \
  X(DeviceGetNumaNodeId, (Device device, unsigned* node))                                                 \
  X(DeviceGetCpuAffinity, (Device device, unsigned words, unsigned long* set))                            \
  X(DeviceGetCpuAffinityWithinScope, (Device device, unsigned words, unsigned long* set, unsigned scope)) \
  X(DeviceGetMemoryAffinity, (Device device, unsigned words, unsigned long* set, unsigned scope))         \
  X(GpmQueryDeviceSupport, (Device device, GpmSupport * support))                                         \
  X(GpmSampleAlloc, (GpmSample * sample))                                                                 \
  X(GpmSampleFree, (GpmSample sample))                                                                    \
  X(GpmSampleGet, (Device device, GpmSample sample))                                                      \
  X(GpmMigSampleGet, (Device device, unsigned gpu_instance, GpmSample sample))                            \
  X(GpmMetricsGet, (GpmMetricsGet * metrics))                                                             \
  X(EventSetCreate, (EventSet * set))                                                                     \
  X(EventSetFree, (EventSet set))                                                                         \
  X(EventSetWait_v2, (EventSet set, EventData * data, unsigned timeout_ms))                               \
  X(DeviceGetSupportedEventTypes, (Device device, unsigned long long* types))                             \
  X(DeviceRegisterEvents, (Device device, unsigned long long types, EventSet set))

// The function types: `auto* f = reinterpret_cast<nvml::call::DeviceGetUUID*>(dlsym(lib, "nvmlDeviceGetUUID"))`.
namespace call {
// NOLINTNEXTLINE(bugprone-macro-parentheses): the arguments have theirs
#define LULL_NVML_TYPE(name, arguments) using name = Return arguments;
LULL_NVML_CALLS(LULL_NVML_TYPE)
#undef LULL_NVML_TYPE
using ErrorString = const char*(Return code);
}  // namespace call

}  // namespace lull::nvml
