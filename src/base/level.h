#pragma once
// How much a line matters to whoever reads it.

#include <cstdint>

namespace lull {

enum class Level : std::uint8_t { debug, note, warning, important };

}  // namespace lull
