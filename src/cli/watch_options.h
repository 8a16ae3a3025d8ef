#pragma once
// The options that several watching commands have: those of `lull run` and `lull watch`, and how much is said.

#include <string>

#include "cli/options.h"
#include "session/watch_words.h"

namespace lull {

// The option --idle, to ask whether it was given.
CommandLine::Option add_watch_options(CommandLine& line, WatchWords& words, const Settings& known,
                                      const std::string& its_gpus);
void add_voice_options(CommandLine& line, VoiceWords& words, const std::string& quiet_says,
                       const std::string& verbose_says);

}  // namespace lull
