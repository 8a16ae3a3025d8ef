#pragma once
// The driver's management library, loaded when it is needed: libnvidia-ml.so.1,
// or what $LULL_NVML names. lull neither links nor needs it. Every function may
// be missing (an old driver) and then answers `function_not_found`, which costs
// the one value that needed it.
//
// A call may hang in the kernel for seconds or for ever, so only the sensor
// process calls anything here (see sense/sensor.h).

#include <memory>
#include <string>

#include "base/result.h"
#include "gpu/snapshot.h"
#include "nvml/calls.h"

namespace lull {

// The calls that the sensor makes.
#define LULL_SENSE_CALLS(X)                 \
  X(Init_v2)                                \
  X(InitWithFlags)                          \
  X(Shutdown)                               \
  X(SystemGetDriverVersion)                 \
  X(DeviceGetCount_v2)                      \
  X(DeviceGetHandleByIndex_v2)              \
  X(DeviceGetHandleByPciBusId_v2)           \
  X(DeviceGetIndex)                         \
  X(DeviceGetName)                          \
  X(DeviceGetUUID)                          \
  X(DeviceGetMinorNumber)                   \
  X(DeviceGetPciInfo_v3)                    \
  X(DeviceGetUtilizationRates)              \
  X(DeviceGetSamples)                       \
  X(DeviceGetMemoryInfo)                    \
  X(DeviceGetMemoryInfo_v2)                 \
  X(DeviceGetFieldValues)                   \
  X(DeviceGetPowerUsage)                    \
  X(DeviceGetEnforcedPowerLimit)            \
  X(DeviceGetPowerManagementLimit)          \
  X(DeviceGetTotalEnergyConsumption)        \
  X(DeviceGetTemperature)                   \
  X(DeviceGetFanSpeed)                      \
  X(DeviceGetClockInfo)                     \
  X(DeviceGetMaxClockInfo)                  \
  X(DeviceGetPerformanceState)              \
  X(DeviceGetCurrentClocksThrottleReasons)  \
  X(DeviceGetCurrentClocksEventReasons)     \
  X(DeviceGetPcieThroughput)                \
  X(DeviceGetComputeRunningProcesses)       \
  X(DeviceGetComputeRunningProcesses_v2)    \
  X(DeviceGetComputeRunningProcesses_v3)    \
  X(DeviceGetGraphicsRunningProcesses)      \
  X(DeviceGetGraphicsRunningProcesses_v2)   \
  X(DeviceGetGraphicsRunningProcesses_v3)   \
  X(DeviceGetMPSComputeRunningProcesses)    \
  X(DeviceGetMPSComputeRunningProcesses_v2) \
  X(DeviceGetMPSComputeRunningProcesses_v3) \
  X(DeviceGetMigMode)                       \
  X(DeviceGetMaxMigDeviceCount)             \
  X(DeviceGetMigDeviceHandleByIndex)        \
  X(DeviceGetGpuInstanceId)                 \
  X(DeviceGetComputeInstanceId)             \
  X(DeviceGetTopologyCommonAncestor)        \
  X(DeviceGetNvLinkState)                   \
  X(DeviceGetNvLinkRemotePciInfo_v2)        \
  X(DeviceGetNvLinkRemoteDeviceType)

namespace nvml::call {
using DeviceGetNumGpuCores = Return(Device device, unsigned* cores);  // not in every driver, and only for a guess
using DeviceGetDisplayActive = Return(Device device, unsigned* active);
}  // namespace nvml::call

// null where the library does not have it.
struct NvmlCalls {
#define LULL_SENSE_MEMBER(name) nvml::call::name* name = nullptr;
  LULL_SENSE_CALLS(LULL_SENSE_MEMBER)
#undef LULL_SENSE_MEMBER
  nvml::call::DeviceGetNumGpuCores* DeviceGetNumGpuCores = nullptr;
  nvml::call::DeviceGetDisplayActive* DeviceGetDisplayActive = nullptr;
};

// ask(calls.DeviceGetUUID, handle, …): the answer, or that there is no such call.
template <class Function, class... Arguments>
nvml::Return ask(Function* function, Arguments... arguments) {
  return function == nullptr ? nvml::Return::function_not_found : function(arguments...);
}

Absence absence_of(nvml::Return code);

// The driver itself is gone or was exchanged: every handle is void, start anew.
bool driver_gone(nvml::Return code);

// What the library's answer to its first call means, for a person, and what helps. `path`: of the library.
std::string start_words(nvml::Return code, const std::string& path, bool container);

// One loaded and initialised library.
class Nvml {
 public:
  // `library` empty: $LULL_NVML, else libnvidia-ml.so.1. What went wrong is a state to show, not an error.
  static std::shared_ptr<Nvml> open(const std::string& library, DriverState& state);

  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();          // gives the library back; does not call into it
  void shutdown();  // once; a thread that still hangs in a call gets an error from it, whenever it returns

  const NvmlCalls& calls() const { return calls_; }
  const std::string& path() const { return path_; }  // as the loader found it
  const std::string& driver_version() const { return driver_version_; }
  unsigned gpu_count() const { return gpu_count_; }

 private:
  Nvml() = default;
  nvml::Return initialise();
  void resolve();

  void* handle_ = nullptr;
  NvmlCalls calls_;
  std::string path_;
  std::string driver_version_;
  unsigned gpu_count_ = 0;
  bool initialised_ = false;
};

}  // namespace lull
