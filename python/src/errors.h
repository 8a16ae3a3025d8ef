#pragma once
// Mistakes and refusals on their way to Python: each becomes an exception of lull's own, with the words that the
// command line would say.

#include <cstdint>
#include <stdexcept>
#include <string>

#include "base/result.h"

namespace lull::python {

enum class Kind : std::uint8_t { error, usage, rule, driver };

struct Complaint : std::runtime_error {
  Complaint(Kind what_kind, const std::string& text) : std::runtime_error(text), kind(what_kind) {}
  Kind kind;
};

// The value, or the exception.
template <class T>
T must(Result<T> result, Kind kind = Kind::usage) {
  if (!result) throw Complaint(kind, result.error().message());
  if constexpr (!std::is_void_v<T>) return *std::move(result);
}

}  // namespace lull::python
