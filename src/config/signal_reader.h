#pragma once
// Reads a signal of the user's own from a TOML file. Apart from config/signal_source.h, which is installed
// (tools/headers.cmake).

#include <string_view>

#include "base/toml.h"
#include "config/signal_source.h"

namespace lull {

// Of a file: `value` is what stands behind the name in [signals]. `file` names it in complaints.
Result<SignalSource> read_signal(std::string_view name, const toml::Node& value, std::string_view file);

}  // namespace lull
