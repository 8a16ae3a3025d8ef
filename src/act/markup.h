#pragma once
// Text from outside for HTML and SVG.

#include <string>
#include <string_view>

namespace lull {

// Without control characters and broken UTF-8, and with nothing that a reader of markup could take for its own, in text
// and in attributes with quotes. Lines stay lines.
std::string for_markup(std::string_view text);

}  // namespace lull
