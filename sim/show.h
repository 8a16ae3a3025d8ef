#pragma once
// What is simulated now, as the simulation itself knows it: values (and which of them were set by
// hand), faults in force, processes. A client's view of it, through NVML, is `lull status`.

#include <string>

#include "base/result.h"
#include "sim/writer.h"

namespace lull::sim {

Result<std::string> show_text(const Writer& writer);
Result<std::string> show_json(const Writer& writer);

}  // namespace lull::sim
