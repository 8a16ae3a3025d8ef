#pragma once
// What `lull run` and `lull watch` have in common on the command line: which rule,
// on which GPUs, how often, and how much is said.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/options.h"
#include "config/settings.h"
#include "rule/policy.h"
#include "session/say.h"

namespace lull {

struct WatchOptions {
  std::string idle;
  std::string arm = {};
  std::string delay = "0s";
  std::string every = "1s";
  std::string gpus = {};
  std::vector<std::string> also = {};
  std::string missing = "unknown";
  std::string log_format = "text";
  bool quiet = false;
  bool verbose = false;
};
// The option --idle, to ask whether it was given.
CommandLine::Option add_watch_options(CommandLine& line, WatchOptions& options, const Settings& known,
                                      const std::string& its_gpus);

struct WatchChoice {
  Policy policy;
  Duration every{};
  Duration delay{};
  std::string gpus;
  WhenMissing missing = WhenMissing::unknown;
};
Result<WatchChoice> settle_watch_options(const WatchOptions& options, const Settings& settings);
// "util < 1 for 30m (idle)", or the rule alone where it was given as one.
std::string rule_in_words(const Settings& settings, const std::string& given, const Rule& rule);
// What is valid but surely not meant, as a rule without `for`: a line each.
void say_remarks(const Sayer& sayer, const Policy& policy);
Sayer make_sayer(const WatchOptions& options, const Clock& clock);

}  // namespace lull
