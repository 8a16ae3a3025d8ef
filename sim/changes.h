#pragma once
// What a person changes of a running simulation, from the words they said it in.

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/writer.h"

namespace lull::sim {

// One NAME=VALUE as changes of each GPU (pcie is two values).
Result<std::vector<Change>> parse_change(std::string_view word, const std::vector<std::size_t>& gpus,
                                         const State& state);
// "asleep=on", "asleep=1", …
Result<bool> parse_switch(std::string_view word);
// Ends the faults of these GPUs and gives what was set back to the scenario.
Result<> take_back(Writer& writer, const std::vector<std::size_t>& gpus);

}  // namespace lull::sim
