#include "columns.h"

#include <pybind11/pybind11.h>

#include <cmath>
#include <cstring>

#include "errors.h"
#include "gpu/metric.h"

namespace py = pybind11;

namespace lull::python {
namespace {

constexpr double kLongest = 9e9;  // seconds: nanoseconds of more do not fit

// Freed with the GIL, wherever the last who uses it is.
std::shared_ptr<Py_buffer> buffer_of(const py::object& values) {
  auto* buffer = new Py_buffer;
  if (PyObject_GetBuffer(values.ptr(), buffer, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    delete buffer;
    throw py::error_already_set();
  }
  return {buffer, [](Py_buffer* it) {
            const py::gil_scoped_acquire acquire;
            PyBuffer_Release(it);
            delete it;
          }};
}

double number_of(const std::string& name, const py::handle& value) {
  if (value.is_none()) return kUnknown;
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw Complaint(python::Kind::usage, name + ": " + py::repr(value).cast<std::string>() + " is not a number");
  }
  return number;
}

// NaN is. In pieces of one size, which the compiler makes a few instructions of.
bool all_in_range(std::span<const float> values, float lowest, float highest) {
  constexpr std::size_t kPiece = 64;
  const float* at = values.data();
  int bad = 0;
  std::size_t i = 0;
  for (; i + kPiece <= values.size(); i += kPiece)
    for (std::size_t k = 0; k < kPiece; ++k)
      bad |= static_cast<int>(at[i + k] < lowest) | static_cast<int>(at[i + k] > highest);
  for (; i < values.size(); ++i) bad |= static_cast<int>(at[i] < lowest) | static_cast<int>(at[i] > highest);
  return bad == 0;
}

}  // namespace

template <class T>
T Column::read(std::size_t i) const {
  T value{};
  std::memcpy(&value, data_ + static_cast<std::ptrdiff_t>(i) * stride_, sizeof value);
  return value;
}

double Column::at(std::size_t i) const {
  switch (kind_) {
    case Kind::float32: return static_cast<double>(read<float>(i));
    case Kind::float64: return read<double>(i);
    case Kind::int64: return static_cast<double>(read<std::int64_t>(i));
    case Kind::moments: return static_cast<double>(read<std::int64_t>(i)) / 1e9;
    case Kind::int32: return static_cast<double>(read<std::int32_t>(i));
    case Kind::constant: break;
  }
  return constant_;
}

std::vector<Column> Column::of(const std::string& name, const py::object& values) {
  py::object given = values;
  if (py::hasattr(given, "to_numpy")) given = given.attr("to_numpy")();  // of pandas
  bool moments = false;
  if (py::hasattr(given, "dtype") && py::hasattr(given, "astype") &&
      given.attr("dtype").attr("kind").cast<std::string>() == "M") {
    given = given.attr("astype")("datetime64[ns]", py::arg("copy") = false).attr("view")("int64");
    moments = true;
  }
  Column column;
  if (PyObject_CheckBuffer(given.ptr()) == 0) {
    if (!py::isinstance<py::sequence>(given) || py::isinstance<py::str>(given)) {
      column.constant_ = number_of(name, given);
      return {column};
    }
    auto list = std::make_shared<std::vector<double>>();
    for (const py::handle one : given) list->push_back(number_of(name, one));
    column.kind_ = Kind::float64;
    column.data_ = reinterpret_cast<const std::byte*>(list->data());
    column.stride_ = sizeof(double);
    column.size_ = list->size();
    column.owner_ = std::move(list);
    return {column};
  }
  const auto buffer = buffer_of(given);
  const std::string format = buffer->format == nullptr ? "B" : buffer->format;
  const char type = format.empty() ? '?' : format.back();
  const bool native = format.size() == 1 || format[0] == '@' || format[0] == '=' || format[0] == '<';
  if (native && type == 'f')
    column.kind_ = Kind::float32;
  else if (native && type == 'd')
    column.kind_ = Kind::float64;
  else if (native && (type == 'q' || type == 'l') && buffer->itemsize == 8)
    column.kind_ = moments ? Kind::moments : Kind::int64;
  else if (native && (type == 'i' || type == 'l') && buffer->itemsize == 4)
    column.kind_ = Kind::int32;
  else if (py::hasattr(given, "astype"))
    return of(name, given.attr("astype")("float64"));
  else
    throw Complaint(python::Kind::usage, name + ": an array of float32, float64 or integers would be right");
  if (buffer->ndim == 0) {
    column.data_ = static_cast<const std::byte*>(buffer->buf);
    const double value = column.at(0);
    column = Column();
    column.constant_ = value;
    return {column};
  }
  if (buffer->ndim > 2)
    throw Complaint(python::Kind::usage, name + ": one row per sample and one column per GPU would be right");
  column.owner_ = buffer;
  column.stride_ = buffer->strides[0];
  column.size_ = static_cast<std::size_t>(buffer->shape[0]);
  std::vector<Column> columns;
  const Py_ssize_t count = buffer->ndim == 2 ? buffer->shape[1] : 1;
  for (Py_ssize_t i = 0; i < count; ++i) {
    columns.push_back(column);
    columns.back().data_ =
        static_cast<const std::byte*>(buffer->buf) + (buffer->ndim == 2 ? i * buffer->strides[1] : 0);
  }
  return columns;
}

std::span<const float> Column::floats(std::size_t from, std::size_t count, Metric metric,
                                      std::span<float> buffer) const {
  // Compared as floats, as traces are.
  const auto lowest = static_cast<float>(info(metric).range.lowest);
  const auto highest = static_cast<float>(info(metric).range.highest);
  const auto good = [&](float value) { return value >= lowest && value <= highest; };
  if (kind_ == Kind::float32 && stride_ == sizeof(float) &&
      reinterpret_cast<std::uintptr_t>(data_) % alignof(float) == 0) {
    const std::span<const float> there(reinterpret_cast<const float*>(data_) + from, count);
    if (all_in_range(there, lowest, highest)) return there;
  }
  if (kind_ == Kind::float64 && stride_ == sizeof(double)) {
    const double* values = reinterpret_cast<const double*>(data_) + from;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>(values[i]);
      buffer[i] = good(value) ? value : kUnknownSample;
    }
    return buffer.first(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(at(from + i));
    buffer[i] = good(value) ? value : kUnknownSample;
  }
  return buffer.first(count);
}

std::span<const Instant> Column::instants(std::size_t from, std::size_t count, std::span<Instant> buffer) const {
  static_assert(sizeof(Instant) == sizeof(std::int64_t));
  if (kind_ == Kind::moments && stride_ == sizeof(Instant)) {
    return {reinterpret_cast<const Instant*>(data_) + from, count};
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (kind_ == Kind::moments) {
      buffer[i] = Instant(Duration(read<std::int64_t>(from + i)));
      continue;
    }
    const double seconds = kind_ == Kind::float64 && stride_ == sizeof(double)
                               ? reinterpret_cast<const double*>(data_)[from + i]
                               : at(from + i);
    if (!(std::fabs(seconds) < kLongest))
      throw Complaint(python::Kind::usage,
                      "times: sample " + std::to_string(from + i) + " has none: seconds would be right");
    buffer[i] = Instant(Duration(static_cast<std::int64_t>(seconds * 1e9)));
  }
  return buffer.first(count);
}

}  // namespace lull::python
