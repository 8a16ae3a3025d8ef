#pragma once
// Columns of numbers as Python has them (NumPy arrays, anything with the buffer protocol, lists), a block at a time.
// What lies in memory as the evaluator wants it (float32, datetime64[ns]) is not copied; anything else is converted
// a block at a time, into buffer that is used again.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "gpu/block.h"

namespace pybind11 {
class object;
}

namespace lull::python {

// One column: of a buffer, of a list, or one number that holds throughout.
class Column {
 public:
  // One for each column of a table (n, gpus), one of anything else.
  static std::vector<Column> of(const std::string& name, const pybind11::object& values);

  std::size_t size() const { return size_; }  // kConstant's: of any size
  bool constant() const { return kind_ == Kind::constant; }
  double at(std::size_t i) const;
  // Samples from `from` on; in `buffer` where they had to be converted. What the metric cannot be is unknown.
  std::span<const float> floats(std::size_t from, std::size_t count, Metric metric, std::span<float> buffer) const;
  // The same as times: moments (datetime64[ns]) as they are, numbers as seconds.
  std::span<const Instant> instants(std::size_t from, std::size_t count, std::span<Instant> buffer) const;
  bool moments() const { return kind_ == Kind::moments; }

 private:
  enum class Kind : std::uint8_t { float32, float64, int64, int32, moments, constant };
  template <class T>
  T read(std::size_t i) const;

  Kind kind_ = Kind::constant;
  std::shared_ptr<void> owner_;  // of the memory: a buffer of Python's, or a vector of ours
  const std::byte* data_ = nullptr;
  std::ptrdiff_t stride_ = 0;
  std::size_t size_ = 0;
  double constant_ = 0;
};

}  // namespace lull::python
