#include "session/watch_options.h"

#include <fmt/format.h>

#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
constexpr Duration kFastest = 10ms;
constexpr Duration kSlowest = 24h;

}  // namespace

Result<> settle_watch(const WatchOptions& words, const Settings& known, SessionSettings& settings) {
  settings.signals = TRY(signals_with(known.signals(), words.signal_from));  // rules name them
  settings.policy.idle = TRY(known.idle_option("--idle", words.idle));
  if (!words.arm.empty()) settings.policy.arm = TRY(known.rule_option("--arm", words.arm));
  settings.every = TRY(duration_option("--every", words.every));
  if (settings.every < kFastest) return fail("--every: at least " + format_duration(kFastest));
  if (settings.every > kSlowest) return fail("--every: at most " + format_duration(kSlowest) + " would be right");
  settings.delay = TRY(duration_option("--delay", words.delay));
  settings.gpus = words.gpus;
  settings.missing = TRY(missing_option(words.missing));
  TRY(check(words.console));
  settings.also = TRY(Also::parse(words.also));
  return {};
}

std::string rule_text(const Settings& known, const std::string& given, const Rule& rule) {
  const Settings::NamedRule* named = known.find_rule(trim(given));
  if (named == nullptr) return to_text(rule);
  const bool built_in = !named->meaning.empty();
  return fmt::format("{} ({}{})", to_text(rule), named->name, built_in ? "" : ", " + named->value.from);
}

void log_remarks(const Logger& logger, const Rule& idle) {
  for (const std::string& remark : remarks(idle)) logger.say(Level::warning, "rule", "--idle: " + remark);
}

}  // namespace lull
