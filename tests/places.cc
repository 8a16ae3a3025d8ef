#include "tests/places.h"

namespace lull {

std::string source_dir() { return LULL_SOURCE_DIR; }
std::string build_dir() { return LULL_BUILD_DIR; }

}  // namespace lull
