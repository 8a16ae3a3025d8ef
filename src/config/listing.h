#pragma once
// All settings with where each came from: a table for people, an object for programs.

#include <string>

#include "config/settings.h"

namespace lull {

std::string settings_text(const Settings& settings);
std::string settings_json(const Settings& settings);

}  // namespace lull
