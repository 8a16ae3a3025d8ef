#pragma once
// A command line that stands in a file as one text, cut into its words as a POSIX shell cuts them.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

// Blanks, '…', "…" and \ mean what they mean to a shell; nothing is expanded, and there are no pipes or variables.
// An error: a quote that is not closed, or a \ with nothing behind it.
Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace lull
