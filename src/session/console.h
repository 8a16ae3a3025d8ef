#pragma once
// lull's own console output: what `lull run` and `lull watch` tell people of their sessions, through a Logger.

#include <memory>
#include <string>
#include <vector>

#include "session/logger.h"
#include "session/sink.h"
#include "session/watch_session.h"

namespace lull {

// Whether --warn warns users: only before powering off.
bool warns_of_any(const std::vector<ActionOption>& actions);

// `start`: what is said at the beginning.
std::unique_ptr<Sink> run_console(const Logger& logger, std::string start);
std::unique_ptr<Sink> watch_console(Logger& logger, const Clock& clock, bool live, std::string start);
// `live`: on a terminal, one line that is kept up to date; `rule` as a person would know it again.
std::unique_ptr<Sink> watch_console(Logger& logger, const Clock& clock, bool live, const WatchSettings& settings,
                                    const std::string& rule);

}  // namespace lull
