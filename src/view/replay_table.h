#pragma once
// A replay's result as text for a person: totals, firings, the sweep with its knee.

#include <optional>
#include <string>

#include "replay/replay.h"
#include "view/columns.h"

namespace lull {

// `most_firings` are listed; the rest is counted.
std::string replay_table(const replay::ReplayResult& result, std::optional<double> price, std::size_t most_firings,
                         const Screen& screen);

}  // namespace lull
