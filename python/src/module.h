#pragma once
// The parts of the module, each of which adds its names to it.

#include <cmath>

namespace pybind11 {
class module_;
}

namespace lull::python {

// A mean has no more to say than thousandths, as in `lull status --json`.
inline double rounded(double value) { return std::round(value * 1000) / 1000; }

void add_errors(pybind11::module_& module);
void add_gpus(pybind11::module_& module);
void add_cuda(pybind11::module_& module);
void add_evidence(pybind11::module_& module);
void add_watch(pybind11::module_& module);
void add_rules(pybind11::module_& module);

}  // namespace lull::python
