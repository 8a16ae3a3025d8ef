#pragma once
// What the engine found, for people: an event as a short word for logs, and as a line.

#include <string>
#include <string_view>
#include <vector>

#include "act/action.h"
#include "act/actions.h"
#include "base/level.h"
#include "engine/event.h"
#include "gpu/snapshot.h"

namespace lull {

// "no-gpu", "cannot-judge", "armed"
std::string_view event_name(const Event& event);
// "no sample for 3m (machine suspended or overloaded): the idle time starts again"
std::string to_string(const Event& event);
// Something is wrong, rather than news.
bool is_trouble(const Event& event);
// "GPU 0", "GPUs 0, 2"
std::string gpus_text(const std::vector<Device>& devices);

// The same of what happens while lull acts, and how much it matters.
std::string_view event_name(const ActionEvent& action_event);
Level level_of(const ActionEvent& action_event);
std::string to_string(const ActionEvent& action_event);

// What follows "would" where nothing is done: "shutdown" and "exit=3" are "shut down, then exit with 3".
std::string would_text(const std::vector<ActionOption>& actions);

}  // namespace lull
