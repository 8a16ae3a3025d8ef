#pragma once
// What has to be known of a trace before it is judged: whether it has what a rule looks
// at, and how far apart the samples of each GPU are.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trace/reader.h"

namespace lull::replay {

// Which traces are read, and how: what `lull replay` and `lull report` have in common.
struct TracesToRead {
  std::vector<std::string> paths;
  std::vector<trace::ColumnChoice> columns;
  std::optional<Duration> gap;    // else longest_gap() of the median interval, or of `every`
  std::optional<Duration> every;  // of a trace without times: how far apart its samples are
  unsigned threads = 0;
  std::function<void(double part)> progress;
};
// Of the `wanted` signals those are read that it has; one of the `needed` that it lacks is said with the recording that
// would have it.
Result<trace::TraceReader> open_traces(const TracesToRead& traces, std::vector<Metric> wanted,
                                       const std::vector<Metric>& needed, std::size_t memory);

// Twice the median interval of each GPU; 0 where there is none. Reads the trace as often as that takes.
Result<std::vector<std::int64_t>> survey(trace::TraceReader& reader, trace::TraceReport* report = nullptr);
// The names of the files, in short.
std::string name_of(const std::vector<std::string>& paths);

}  // namespace lull::replay
