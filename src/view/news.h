#pragma once
// What happens while lull acts, for people: a short word for logs, how much it matters, and a line.

#include <string>
#include <string_view>

#include "act/action.h"
#include "base/level.h"

namespace lull {

std::string_view event_word(const News& news);
Level level_of(const News& news);
std::string to_words(const News& news);

// What follows "would" where nothing is done: "shutdown, then exit=3" -> "shut down, then exit with 3".
std::string would_text(std::string_view action);

}  // namespace lull
