#pragma once
// What the engine found, for people: an event as a short word for logs, and as a line.

#include <string>
#include <string_view>
#include <vector>

#include "engine/event.h"
#include "gpu/snapshot.h"

namespace lull {

// "no-gpu", "cannot-judge", "armed"
std::string_view event_name(const Event& event);
// "nothing was seen for 3m (suspended, or starved): the count begins anew"
std::string to_string(const Event& event);
// Something is wrong, rather than news.
bool is_trouble(const Event& event);
// "GPU 0", "GPUs 0, 2"
std::string gpus_text(const std::vector<Device>& devices);

}  // namespace lull
