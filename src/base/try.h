#pragma once
// TRY, the house's one macro: `Fd fd = TRY(open_file(path, O_RDONLY));`. Whoever includes base/result.h has it. It
// stays out of the installed headers (tools/headers.cmake): a program of others may have a TRY of its own.

#include <expected>
#include <utility>

// Yields the value, or returns the error from the enclosing function.
#define TRY(...)                                             \
  __extension__({                                            \
    auto&& try_result = (__VA_ARGS__);                       \
    if (!try_result) [[unlikely]]                            \
      return std::unexpected(std::move(try_result).error()); \
    *std::move(try_result);                                  \
  })
