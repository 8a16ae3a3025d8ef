#pragma once
// NVML as a program sees it that knows only the public documentation: declared here
// anew, without abi.h, so that a mistake there does not cancel out in the tests.

#include <dlfcn.h>

#include <stdexcept>
#include <string>

namespace public_api {

using Device = void*;
enum {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNoPermission = 4,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kTimeout = 10,
  kGpuIsLost = 15,
  kResetRequired = 16,
  kMismatch = 18,
  kVersionMismatch = 25,
  kUnknown = 999,
};

struct Utilization {
  unsigned int gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
struct Memory2 {
  unsigned int version;
  unsigned long long total, reserved, free, used;
};
struct Process1 {
  unsigned int pid;
  unsigned long long memory;
};
struct Process2 {
  unsigned int pid;
  unsigned long long memory;
  unsigned int gpu_instance, compute_instance;
};
struct Sample {
  unsigned long long timestamp;
  union {
    double d;
    unsigned int ui;
    unsigned long long ull;
  } value;
};
struct Pci {
  char legacy[16];
  unsigned int domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};
struct FieldValue {
  unsigned int id, scope;
  long long timestamp, latency;
  int value_type, result;
  union {
    double d;
    unsigned int ui;
    unsigned long long ull;
  } value;
};

struct GpmSupport {
  unsigned int version, supported;
};
struct GpmMetric {
  unsigned int id;
  int result;
  double value;
  char *short_name, *long_name, *unit;
};
struct GpmMetricsGet {  // of CUDA 12
  unsigned int version, count;
  void *first, *second;
  GpmMetric metrics[98];
};

// The library, loaded as any program loads it.
class Library {
 public:
  explicit Library(const std::string& path) : handle_(::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (handle_ == nullptr) throw std::runtime_error(::dlerror());
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() { ::dlclose(handle_); }

  void* find(const char* name) const { return ::dlsym(handle_, name); }

  // call("nvmlDeviceGetName", device, buffer, 64U)
  template <class... Arguments>
  int call(const char* name, Arguments... arguments) const {
    void* function = find(name);
    if (function == nullptr) throw std::runtime_error(std::string("no ") + name);
    return reinterpret_cast<int (*)(Arguments...)>(function)(arguments...);
  }

 private:
  void* handle_;
};

}  // namespace public_api
