#pragma once
// A command as one text, cut into words as a shell would: blanks part them, 'single' and "double" quotes and the
// backslash keep them together. Nothing is expanded: a $ or * stays what it is.

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace lull {

Result<std::vector<std::string>> shell_words(std::string_view text);

}  // namespace lull
