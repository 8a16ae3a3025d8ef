#pragma once
// The driver's management library, loaded when it is needed: libnvidia-ml.so.1, or what $LULL_NVML names. Every
// function may be missing (an old driver) and then answers `function_not_found`, which costs the one value that needed
// it. A call may hang in the kernel, so only the sensor process calls anything here (sense/sensor.h).

#include <memory>
#include <string>
#include <string_view>

#include "gpu/snapshot.h"
#include "nvml/calls.h"

namespace lull {

namespace nvml::call {
using DeviceGetNumGpuCores = Return(Device device, unsigned* cores);  // not in every driver, and only for a guess
}  // namespace nvml::call

// null where the library does not have it.
struct NvmlCalls {
#define LULL_MEMBER(name, arguments) nvml::call::name* name = nullptr;
  LULL_NVML_CALLS(LULL_MEMBER)
#undef LULL_MEMBER
  nvml::call::DeviceGetNumGpuCores* DeviceGetNumGpuCores = nullptr;
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
std::string start_text(nvml::Return code, const std::string& path, bool container);

// The path of the library in a folder where some systems keep it and the loader does not look; empty: in none of them.
// `top` stands for / in tests.
std::string find_library(std::string_view name, const std::string& top = "");
// Where the library is there only if the container was started for it.
bool in_container(const std::string& top = "");

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
