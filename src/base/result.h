#pragma once
// Errors are values. A function that can fail returns Result<T>; the caller
// either handles it or passes it on with TRY, adding what it was doing with
// during(). Code below src/cli neither logs nor exits: what it has to tell goes to a sink.

#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace lull {

struct Error {
  std::string what;     // "open /dev/nvidia0: reading the minor number"
  int errno_value = 0;  // 0: not a failed system call

  // Says what the caller was doing. Outermost first, like a stack read aloud.
  Error&& during(std::string_view doing) && {
    what.insert(0, std::string(doing) + (what.empty() ? "" : ": "));
    return std::move(*this);
  }

  // One line for a person: what, and the system's own words if it was one.
  std::string message() const;
};

template <class T = void>
using Result = std::expected<T, Error>;

// The same of a result: what it failed at.
template <class T>
Result<T> during(std::string_view doing, Result<T> result) {
  if (!result) (void)std::move(result.error()).during(doing);
  return result;
}

inline std::unexpected<Error> fail(std::string what) { return std::unexpected(Error{std::move(what), 0}); }
inline std::unexpected<Error> fail(int errno_value, std::string what) {
  return std::unexpected(Error{std::move(what), errno_value});
}

}  // namespace lull

#include "base/try.h"  // for the house: not installed with the library
