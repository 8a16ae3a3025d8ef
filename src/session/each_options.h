#pragma once
// What `lull watch --per gpu|job` is told, each value as it was written, and the settings of its session that come of
// it.

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"
#include "session/each_session.h"
#include "session/watch_session.h"

namespace lull {

struct EachOptions {
  std::string per;
  std::vector<std::string> steps;
  std::string steps_place = {};  // of the settings that say them; empty: --step does
  std::vector<std::string> except_users;
  std::vector<std::string> only_users;
  std::string hours;
  std::string keep_at_most;
  std::optional<std::string> slurm = {};  // --slurm[=DIR]

  bool asked() const { return !per.empty(); }
};

// `watch`: what the options that it shares with any `lull watch` came to. `given_idle`: --idle or --do was given.
Result<EachSettings> settle_each(const EachOptions& options, const WatchSettings& watch, bool given_idle,
                                 const Settings& known);
// Refuses what only makes sense with --per.
Result<> refuse_without_per(const EachOptions& options, const std::vector<ActionOption>& actions);
// An action as --do has it; where notifications go is as the settings say, if it does not say so itself.
Result<ActionOption> settle_action(std::string_view text, const Settings& known);

// "each GPU by itself: util < 1 for 30m: notify; util < 1 for 1h: end; …"
std::string start_line(const EachSettings& settings);

}  // namespace lull
