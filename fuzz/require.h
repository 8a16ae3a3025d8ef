#pragma once
// What must hold whatever the bytes are: else the fuzzer has found something.

#include <cstdlib>

inline void require(bool what) {
  if (!what) std::abort();
}
