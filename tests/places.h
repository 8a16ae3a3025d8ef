// The folders that tests read and run programs from.
// places.cc alone is compiled with their names: objects of tests are the same in every clone.
#pragma once

#include <string>

namespace lull {

std::string source_dir();
std::string build_dir();  // has `lull` and the simulated driver

}  // namespace lull
