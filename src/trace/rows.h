#pragma once
// Readings as the text of a trace: one row a GPU a sample, as CSV with a header
// whose names carry their unit, or as NDJSON. Unknown is an empty cell or null.

#include <span>
#include <string>

#include "base/json_writer.h"
#include "gpu/metric.h"
#include "gpu/snapshot.h"
#include "trace/schema.h"

namespace lull::trace {

// With its newline; NDJSON has none.
std::string header_line(Format format, std::span<const Metric> metrics);
void append_row(std::string& out, Format format, WallTime at, const Device& device, const Reading& reading,
                std::span<const Metric> metrics);

}  // namespace lull::trace
