#pragma once
// What `lull run` and `lull watch` are told alike, each value as it was written: which rule, on which GPUs, how often,
// and how much is said; and the settings that come of it.

#include <string>
#include <vector>

#include "base/result.h"
#include "config/settings.h"
#include "session/logger.h"
#include "session/session.h"

namespace lull {

struct WatchOptions {
  std::string idle;
  std::string arm = {};
  std::string delay = "0s";
  std::string every = "1s";
  std::string gpus = {};
  std::vector<std::string> also = {};
  std::string missing = "unknown";
  std::vector<std::string> signal_from = {};
  LogOptions console = {};
};

Result<> settle_watch(const WatchOptions& words, const Settings& known, SessionSettings& settings);
// "util < 1 for 30m (idle)", or the rule alone where it was given as one.
std::string rule_text(const Settings& known, const std::string& given, const Rule& rule);
// What is valid but surely not meant, as a rule without `for`: a line each.
void log_remarks(const Logger& logger, const Rule& idle);

}  // namespace lull
