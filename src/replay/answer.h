#pragma once
// The answer of a replay in words, first of all: what ending by the rule would have
// done; and beside it what the answer rests on: how it was judged, gaps, rows left out.

#include <string>
#include <string_view>
#include <vector>

#include "replay/replay.h"

namespace lull::replay {

// "Ending after 30m would have ended 131 of 143 jobs, of which 126 worked again: 53 % of the work …"
std::string answer(const ReplayResult& result);
// "judged per GPU: 143 GPUs, …; 3.5 GPU-hours in gaps; 12 rows left out"
std::string basis(const ReplayResult& result);
// Which combination to take, or why none: for each setting of what else is swept.
std::vector<std::string> knee_words(const ReplayResult& result);

std::string_view per_text(Per per);  // "gpu"

// A share as people read it: "53 %", "0.4 %", "less than 0.1 %", "-".
std::string share_text(std::optional<double> ratio);

}  // namespace lull::replay
