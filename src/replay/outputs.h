#pragma once
// What `lull replay` and `lull report` share beside their results: what an hour costs, a page that is written whole or
// not at all and never over a trace.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"

namespace lull::replay {

// What an hour of a GPU costs; empty: not said.
Result<std::optional<double>> read_price(const std::string& text);
// What is read must not be written: neither the page nor standard output may be one of the traces, whatever it is
// called there.
Result<> check_outputs(const std::vector<std::string>& traces, const std::string& html);
// Written whole or not at all: a page from an earlier run is not lost to a full disk.
Result<> write_page(const std::string& path, const std::string& page);

}  // namespace lull::replay
