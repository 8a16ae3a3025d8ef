#pragma once
// lull's own voices: what `lull run` and `lull watch` tell people of their sessions, through a Sayer.

#include <memory>
#include <string>
#include <vector>

#include "session/say.h"
#include "session/sink.h"
#include "session/watch_session.h"

namespace lull {

// Whether --warn has anybody to tell: powering off is told, nothing else.
bool warns_of_any(const std::vector<ActionWord>& actions);

// `start`: what is said at the beginning.
std::unique_ptr<Sink> run_voice(const Sayer& sayer, std::string start);
std::unique_ptr<Sink> watch_voice(Sayer& sayer, const Clock& clock, bool live, std::string start);
// `live`: on a terminal, one line that is kept up to date; `rule` as a person would know it again.
std::unique_ptr<Sink> watch_voice(Sayer& sayer, const Clock& clock, bool live, const WatchSettings& settings,
                                  const std::string& rule);

}  // namespace lull
