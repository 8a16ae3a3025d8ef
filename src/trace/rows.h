#pragma once
// Readings as the text of a trace: one row a GPU a sample, as CSV with a header
// whose names carry their unit, or as NDJSON. Unknown is an empty cell or null.

#include <span>
#include <string>
#include <string_view>

#include "gpu/metric.h"
#include "gpu/snapshot.h"
#include "trace/schema.h"

namespace lull::trace {

// A string as JSON writes it, quotes and all. It must be UTF-8.
void append_json_text(std::string& out, std::string_view text);

// With its newline; NDJSON has none.
std::string header_line(Format format, std::span<const Metric> metrics);
void append_row(std::string& out, Format format, WallTime at, const Device& device, const Reading& reading,
                std::span<const Metric> metrics);

}  // namespace lull::trace
