// lull._core: liblull as Python sees it. What is pure Python (lull/*.py) stands on this.
#include "module.h"

#include <pybind11/pybind11.h>

#include <array>

#include "errors.h"

namespace py = pybind11;

namespace lull::python {
namespace {

// Never destroyed: an exception may be on its way while the interpreter ends.
std::array<PyObject*, 4> exceptions{};

PyObject* make(py::module_& module, const char* name, const char* words, std::initializer_list<PyObject*> bases) {
  py::tuple all(bases.size());
  std::size_t i = 0;
  for (PyObject* base : bases) all[i++] = py::reinterpret_borrow<py::object>(base);
  const std::string full = std::string("lull.") + name;
  PyObject* made = PyErr_NewExceptionWithDoc(full.c_str(), words, all.ptr(), nullptr);
  if (made == nullptr) throw py::error_already_set();
  module.attr(name) = py::reinterpret_borrow<py::object>(made);
  return made;
}

}  // namespace

void add_errors(py::module_& module) {
  PyObject* error =
      make(module, "Error", "Everything that lull refuses or fails at. Its text is what the command line says.",
           {PyExc_Exception});
  PyObject* usage = make(module, "UsageError", "What was asked for makes no sense; the text says what would be right.",
                         {error, PyExc_ValueError});
  PyObject* rule =
      make(module, "RuleError", "A rule that cannot be read; the text shows where, and what was expected.", {usage});
  PyObject* driver =
      make(module, "DriverError", "No GPU can be read: the driver is not there, or does not answer.", {error});
  exceptions = {error, usage, rule, driver};
  py::register_exception_translator([](std::exception_ptr caught) {
    try {
      if (caught) std::rethrow_exception(caught);
    } catch (const Complaint& complaint) {
      PyErr_SetString(exceptions[static_cast<std::size_t>(complaint.kind)], complaint.what());
    }
  });
}

}  // namespace lull::python

PYBIND11_MODULE(_core, module) {
  module.doc() = "The parts of lull that are made in C++; import lull.";
  module.attr("__version__") = LULL_VERSION;
  lull::python::add_errors(module);
  lull::python::add_gpus(module);
  lull::python::add_cuda(module);
  lull::python::add_evidence(module);
  lull::python::add_watch(module);
  lull::python::add_rules(module);
}
