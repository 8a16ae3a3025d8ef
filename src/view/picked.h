#pragma once
// What comes of a pick, in words: the choice in the form that was asked for, why there is none,
// and how it stands with one who waits.

#include <cstdint>
#include <string>

#include "base/result.h"
#include "lease/picker.h"

namespace lull {

enum class PickFormat : std::uint8_t { ids, uuids, docker, env, json };

// `uuid`: GPUs are named by UUID. An error if the choice cannot be written in that form.
Result<std::string> picked_text(const Picked& picked, PickFormat format, bool uuid);
std::string refusal_text(const Refusal& refusal);  // a line, and one a GPU
std::string to_string(const Waiting& waiting);     // with what speaks against each GPU
std::string in_short(const Waiting& waiting);      // with how many for which reason

}  // namespace lull
