#pragma once
// Wall time as text, for people and files: RFC 3339 in UTC, and the local time
// that log lines carry. Nothing that decides anything may depend on it.

#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"

namespace lull {

std::string format_rfc3339(WallTime time, int fraction_digits = 3);  // 2024-03-15T11:04:29.052Z
std::optional<WallTime> parse_rfc3339(std::string_view text);        // also with +02:00, a blank for the T, no fraction
std::string format_local(WallTime time, const char* strftime_format);  // "%H:%M:%S"

}  // namespace lull
