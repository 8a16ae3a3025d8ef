#pragma once
// A replay's result as text for a person: totals, what would have been ended, the sweep with its knee.

#include <cstddef>
#include <optional>
#include <string>

#include "replay/replay.h"
#include "view/columns.h"

namespace lull {

inline constexpr std::size_t kShownEnds = 40;

// The first kShownEnds of the jobs that would have been ended; or `all` of them, and every firing.
std::string replay_table(const replay::ReplayResult& result, std::optional<double> price, bool all,
                         const Screen& screen);

}  // namespace lull
