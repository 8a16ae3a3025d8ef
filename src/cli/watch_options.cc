#include "cli/watch_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "base/units.h"
#include "rule/reason.h"

namespace lull {
namespace {

using namespace std::chrono_literals;
constexpr Duration kFastest = 10ms;

}  // namespace

void add_watch_options(CommandLine& line, WatchOptions& options) {
  line.option("--idle", options.idle,
              fmt::format("the rule that must hold (`lull check` explains it); by default {}", kDefaultIdle))
      .value("RULE");
  line.option("--arm", options.arm, "nothing fires before this rule has held once").value("RULE");
  line.option("--delay", options.delay, "nothing is judged before").value("TIME");
  line.option("--every", options.every, "how often the GPUs are sampled").value("TIME");
  line.option("--gpus", options.gpus, "which GPUs count: 0,2 or UUIDs, 3:1 for a MIG device, or all").value("LIST");
  line.each("--also", options.also, "work outside the job's tree that counts as its own and is never ended")
      .value("PID|CGROUP|CONTAINER");
  line.option("--missing", options.missing, "a GPU without a value makes all() unknown, or is left out (ignore)")
      .value("unknown|ignore");
  line.flag("-q,--quiet", options.quiet, "say only what is done");
  line.flag("-v,--verbose", options.verbose, "say each reading");
  line.option("--log-format", options.log_format, "text, or json: one object a line").value("text|json");
}

Result<Duration> duration_option(std::string_view name, std::string_view text) {
  auto parsed = parse_duration(text);
  if (!parsed) return std::unexpected(std::move(parsed).error().during(name));
  return *parsed;
}

Result<WatchChoice> settle_watch_options(const WatchOptions& options) {
  WatchChoice choice;
  auto idle = parse_rule(options.idle);
  if (!idle) return std::unexpected(std::move(idle).error().during("--idle"));
  choice.policy.idle = *std::move(idle);
  if (!options.arm.empty()) {
    auto arm = parse_rule(options.arm);
    if (!arm) return std::unexpected(std::move(arm).error().during("--arm"));
    choice.policy.arm = *std::move(arm);
  }
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

Sayer make_sayer(const WatchOptions& options, const Clock& clock) {
  const Level least = options.quiet ? Level::important : options.verbose ? Level::debug : Level::note;
  return {options.log_format == "json" ? LogFormat::json : LogFormat::text, least, clock};
}

std::string_view event_word(Say::About about) {
  switch (about) {
    case Say::About::no_gpu: return "no-gpu";
    case Say::About::gpu_back: return "gpu-back";
    case Say::About::cannot_judge: return "cannot-judge";
    case Say::About::can_judge: return "can-judge";
    case Say::About::armed: return "armed";
    case Say::About::gap: return "gap";
    case Say::About::scope: return "scope";
    case Say::About::not_judged: return "not-judged";
  }
  return "note";
}

std::string sample_text(const Snapshot& snapshot, const Watcher& watcher) {
  std::string text;
  const auto signals = watcher.policy().idle.signals();
  const auto& devices = snapshot.inventory->devices;
  for (std::size_t i = 0; i < snapshot.readings.size(); ++i) {
    if (std::ranges::none_of(watcher.scope(), [&](const Device& one) { return one.uuid == devices[i].uuid; })) continue;
    text += fmt::format("{}GPU {}", text.empty() ? "" : "; ", devices[i].label());
    for (const Metric metric : signals)
      text += fmt::format(" {} {}", info(metric).name, value_text(metric, snapshot.readings[i][metric]));
  }
  if (watcher.not_judged()) return text.empty() ? "no GPU in scope (not judged)" : text + " (not judged)";
  if (text.empty()) return "no GPU can be read";
  const Verdict& verdict = watcher.verdict();
  if (watcher.delayed(snapshot.at)) return text + " (not judged yet)";
  return text +
         fmt::format(" ({}{})", words(verdict.condition),
                     verdict.held > Duration::zero()
                         ? fmt::format(" for {} of {}",
                                       format_duration(std::chrono::floor<std::chrono::milliseconds>(verdict.held)),
                                       to_text(verdict.needed))
                         : "");
}

}  // namespace lull
