#pragma once
// What happens while lull acts, for people: a short word for logs, how much it matters, and a line.

#include <string>
#include <string_view>

#include "act/action.h"
#include "act/actions.h"
#include "base/level.h"

namespace lull {

std::string_view event_name(const ActionEvent& action_event);
Level level_of(const ActionEvent& action_event);
std::string to_string(const ActionEvent& action_event);

// What follows "would" where nothing is done: "shutdown" and "exit=3" are "shut down, then exit with 3".
std::string would_text(const std::vector<ActionOption>& actions);

}  // namespace lull
