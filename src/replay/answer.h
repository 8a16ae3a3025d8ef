#pragma once
// The answer of a replay in words: the recommended policy, or why there is none, with what ending by it would have
// done; and beside it what the answer rests on: how it was judged, gaps, rows left out. A recording ends before the
// story does: nothing here says "never".

#include <string>
#include <string_view>

#include "replay/replay.h"

namespace lull::replay {

// "Recommended: 2h (weak: the recording covers 1 day). Ends 43 of 143 jobs; 37 of them worked again; 0.1 % (0.0–0.3 %)
// of the work lost; 66 GPU-hours freed. …"
std::string answer(const ReplayResult& result);
// "judged per GPU: 143 GPUs, …; 3.5 GPU-hours in gaps; 12 rows left out"
std::string basis(const ReplayResult& result);

std::string_view per_text(Per per);                                // "gpu"
std::string count_of(std::uint64_t count, std::string_view what);  // "1 job", "2 jobs"

// A share as people read it: "53 %", "0.4 %", "less than 0.1 %", "-".
std::string share_text(std::optional<double> ratio);
// The work lost with its interval: "0.1 % (0.0–0.3 %)".
std::string lost_text(const Totals& totals);
// Of the upper end of that interval, rounded up: a limit that is shown holds. "1.8 %".
std::string limit_text(double limit);
std::string interval_text(const SamplingIntervals& intervals);  // "10s", "1s to 1m"
// A sentence where readings are of a moment; else nothing.
std::string readings_text(bool means, const SamplingIntervals& intervals);
std::string figure_text(double value);       // "66", "1.4", "0.25", "0.017": however small it is, it does not read 0
std::string hours_text(double seconds);      // the same of GPU-hours
std::string length_text(Duration recorded);  // "6 h", "1 day", "30 days"
std::string follow_up_text(double seconds);  // "1.4 h", "12 min"

}  // namespace lull::replay
