#include "cli/watch_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/option_value.h"
#include "base/text.h"
#include "base/units.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
constexpr Duration kFastest = 10ms;

}  // namespace

CommandLine::Option add_watch_options(CommandLine& line, WatchOptions& options, const Settings& known,
                                      const std::string& its_gpus) {
  const Settings::NamedRule* named = known.find_rule(options.idle);
  CommandLine::Option idle =
      line.option("--idle", options.idle, "the rule that must hold, or the name of one; `lull check` explains it",
                  named == nullptr ? "" : fmt::format("{}: {}", named->name, named->value.text));
  idle.value("RULE");
  line.option("--arm", options.arm, "nothing fires before this rule has held once (default: none)").value("RULE");
  line.option("--delay", options.delay, "judge nothing before this long after the start").value("TIME");
  line.option("--every", options.every, "time between two samples").value("TIME");
  line.option("--gpus", options.gpus,
              "which GPUs count: 0,2 or UUIDs, 3:1 for a MIG device, or all (default: " + its_gpus + ")")
      .value("LIST")
      .not_empty("0,2");
  line.each("--also", options.also,
            "work outside the job's processes that counts as the job's own and is never ended (default: none)")
      .value("PID|CGROUP|CONTAINER");
  line.option("--missing", options.missing,
              "what a GPU without a value makes of the rule: it is unknown, or that GPU is ignored")
      .value("unknown|ignore");
  line.flag("-q,--quiet", options.quiet, "say only what is done");
  line.flag("-v,--verbose", options.verbose, "say each reading too");
  line.option("--log-format", options.log_format, "text, or json: one object per line").value("text|json");
  return idle;
}

std::string rule_in_words(const Settings& settings, const std::string& given, const Rule& rule) {
  const Settings::NamedRule* named = settings.find_rule(trim(given));
  if (named == nullptr) return to_text(rule);
  const bool built_in = !named->meaning.empty();
  return fmt::format("{} ({}{})", to_text(rule), named->name, built_in ? "" : ", " + named->value.from);
}

Result<WatchChoice> settle_watch_options(const WatchOptions& options, const Settings& settings) {
  WatchChoice choice;
  choice.policy.idle = TRY(settings.rule_option("--idle", options.idle));
  if (!options.arm.empty()) choice.policy.arm = TRY(settings.rule_option("--arm", options.arm));
  choice.every = TRY(duration_option("--every", options.every));
  if (choice.every < kFastest) return fail("--every: at least " + format_duration(kFastest));
  choice.delay = TRY(duration_option("--delay", options.delay));
  choice.gpus = options.gpus;
  if (options.missing == "ignore") {
    choice.missing = WhenMissing::ignore;
  } else if (options.missing != "unknown") {
    return fail("--missing: 'unknown' or 'ignore', not '" + printable(options.missing) + "'");
  }
  if (options.log_format != "text" && options.log_format != "json")
    return fail("--log-format: 'text' or 'json', not '" + printable(options.log_format) + "'");
  if (options.quiet && options.verbose) return fail("--quiet and --verbose contradict each other");
  return choice;
}

void say_remarks(const Sayer& sayer, const Policy& policy) {
  for (const std::string& remark : remarks(policy.idle)) sayer.say(Level::warning, "rule", "--idle: " + remark);
}

Sayer make_sayer(const WatchOptions& options, const Clock& clock) {
  const Level least = options.quiet ? Level::important : options.verbose ? Level::debug : Level::note;
  return {options.log_format == "json" ? LogFormat::json : LogFormat::text, least, clock};
}

}  // namespace lull
