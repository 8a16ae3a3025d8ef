// Whether CUDA has been initialised in this process: then CUDA_VISIBLE_DEVICES has been read, and setting it does
// nothing. Nothing is loaded to find out.
#include <dlfcn.h>
#include <pybind11/pybind11.h>

#include "module.h"

namespace py = pybind11;

namespace lull::python {
namespace {

constexpr int kNotInitialized = 3;  // CUDA_ERROR_NOT_INITIALIZED

bool cuda_is_initialized() {
  void* library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;  // it was never loaded
  using GetCount = int (*)(int*);
  const auto get_count = reinterpret_cast<GetCount>(::dlsym(library, "cuDeviceGetCount"));
  int count = 0;
  // It answers from what cuInit has found, and initialises nothing itself.
  const bool initialized = get_count != nullptr && get_count(&count) != kNotInitialized;
  ::dlclose(library);
  return initialized;
}

}  // namespace

void add_cuda(py::module_& module) {
  module.def("cuda_is_initialized", &cuda_is_initialized, "CUDA has read CUDA_VISIBLE_DEVICES in this process.");
}

}  // namespace lull::python
