#pragma once
// The TOML file of `lull fill FILE`: text → settings. Every mistake is one line that names file, line and column, what
// was there and what would be right (docs/fill.md has all keys).

#include <string>
#include <string_view>

#include "base/result.h"
#include "fill/settings.h"

namespace lull {

Result<FillSettings> parse_plan(std::string_view text, std::string_view name);
Result<FillSettings> load_plan(const std::string& path);

// "22:00-06:00"
Result<HoursOfDay> parse_hours(std::string_view text);
std::string to_text(const HoursOfDay& hours);
Result<YieldWay> parse_yield(std::string_view text);
std::string_view word_of(YieldWay way);

// Beyond the form: programs, folders and users that are not there, rules that are surely not meant. For --check.
std::vector<std::string> doubts(const FillSettings& settings);

}  // namespace lull
