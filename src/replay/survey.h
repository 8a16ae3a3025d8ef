#pragma once
// What has to be known of a trace before it is judged: how far apart the samples of
// each GPU are, and whether it has what a rule looks at.

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/reader.h"

namespace lull::replay {

// Twice the median interval of each GPU; 0 where there is none. Reads the trace as often as that takes.
Result<std::vector<std::int64_t>> survey(trace::TraceReader& reader, trace::TraceReport* report = nullptr);
// A signal that the trace lacks is said with the recording that would have it.
Result<> check_signals(const std::vector<Metric>& needed, const trace::TraceReader& reader);
// The names of the files, in short.
std::string name_of(const std::vector<std::string>& paths);

}  // namespace lull::replay
