#include "cli/watch_options.h"

#include <fmt/format.h>

namespace lull {

CommandLine::Option add_watch_options(CommandLine& line, WatchWords& words, const Settings& known,
                                      const std::string& its_gpus) {
  const Settings::NamedRule* named = known.find_rule(words.idle);
  CommandLine::Option idle =
      line.option("--idle", words.idle, "the rule that must hold, or the name of one; `lull check` explains it",
                  named == nullptr ? "" : fmt::format("{}: {}", named->name, named->value.text));
  idle.value("RULE");
  line.option("--arm", words.arm, "nothing fires before this rule has held once (default: none)").value("RULE");
  line.option("--delay", words.delay, "judge nothing before this long after the start").value("TIME");
  line.option("--every", words.every, "time between two samples").value("TIME");
  line.option("--gpus", words.gpus,
              "which GPUs count: 0,2 or UUIDs, 3:1 for a MIG device, or all (default: " + its_gpus + ")")
      .value("LIST")
      .not_empty("0,2");
  line.each("--also", words.also,
            "work outside the job's processes that counts as the job's own and is never ended (default: none)")
      .value("PID|CGROUP|CONTAINER");
  line.option("--missing", words.missing,
              "what a GPU without a value makes of the rule: it is unknown, or that GPU is ignored")
      .value("unknown|ignore");
  add_voice_options(line, words.voice, "say only what is done", "say each reading too");
  return idle;
}

void add_voice_options(CommandLine& line, VoiceWords& words, const std::string& quiet_says,
                       const std::string& verbose_says) {
  line.flag("-q,--quiet", words.quiet, quiet_says);
  line.flag("-v,--verbose", words.verbose, verbose_says);
  line.option("--log-format", words.log_format, "text, or json: one object per line").value("text|json");
}

}  // namespace lull
