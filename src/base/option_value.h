#pragma once
// The value of an option as somebody wrote it; the error names the option.

#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace lull {

Result<Duration> duration_option(std::string_view name, std::string_view text);
Result<Duration> limit_option(std::string_view name, std::string_view text);  // more than 0
Result<int> signal_option(std::string_view name, std::string_view text);

}  // namespace lull
