#pragma once
// The options that several commands have: name, value, help text and (where all commands agree) default exist here
// alone. A command adds what is special to it in place of the {} of the help.

#include <optional>
#include <string>
#include <utility>

#include "act/actions.h"
#include "base/result.h"
#include "cli/command.h"
#include "cli/options.h"
#include "session/watch_session.h"

namespace lull {
namespace shared {

// ---- what is judged, and how
inline constexpr SharedOption kIdle{"--idle", "RULE", "the rule {}"};
inline constexpr const char* kIdleForms =  // of --idle where settings are read
    ", the name of one, or a time (30m: the default rule for so long); `lull check` explains it";
inline constexpr SharedOption kArm{"--arm", "RULE", "nothing fires before this rule has held once (default: none)"};
inline constexpr SharedOption kDelay{"--delay", "TIME", "judge nothing until this long after {}"};
inline constexpr SharedOption kEvery{"--every", "TIME", "time between two samples{}"};
inline constexpr SharedOption kMissing{"--missing", "unknown|ignore",
                                       "if a GPU has no value: the rule is unknown, or that GPU is ignored"};
inline constexpr SharedOption kSignalFrom{"--signal-from", "NAME=SOURCE",
                                          "a signal of your own, for rules: SOURCE is file:PATH, command:CMD, or a "
                                          "table of TOML as in [signals] of lull.toml; "
                                          "several times (default: those of lull.toml)"};
inline constexpr SharedOption kPer{"--per", "gpu|job", "what is judged, and acted on, by itself: each GPU, each job{}"};
inline constexpr SharedOption kGpus{
    "--gpus", "LIST", "{}: 0,2 or 0-3, amd:0, a UUID or the beginning of one, 3:1 for a MIG device, or all", "0,2"};
inline constexpr const char* kOnlyThese = "only these GPUs";  // of --gpus
inline constexpr SharedOption kExceptUser{"--except-user", "USER,…", "users whose {}"};

// ---- what is done
inline constexpr SharedOption kSignal{"--signal", "NAME", "the signal that {} first"};
inline constexpr SharedOption kGrace{"--grace", "TIME", "how long its processes then have before SIGKILL"};
inline constexpr SharedOption kEvidence{
    "--evidence", "DIR", "before {}, write what was seen into a new folder below DIR (default: nowhere)"};
inline constexpr SharedOption kDryRun{"--dry-run", "", "only say what would be done{}"};
inline constexpr SharedOption kRequireGpu{"--require-gpu", "", "{} if no GPU can be read (125)"};
inline constexpr SharedOption kNoCgroup{"--no-cgroup", "", "{}, without a cgroup"};
inline constexpr SharedOption kHours{"--hours", "SPAN,…",
                                     "{} only in these hours of the day, such as 20-08 (default: always)"};
inline constexpr SharedOption kLimit{"--limit", "TIME", "how long {} may take"};
inline constexpr SharedOption kParkElse{"--park-else", "end|keep", "what is done with {}"};
inline constexpr SharedOption kCudaCheckpoint{"--cuda-checkpoint", "PATH", "the tool that parks (default: {})"};
inline constexpr const char* kConfiguredTool = "as `lull config` says, else from PATH";

// ---- what is said
inline constexpr SharedOption kJson{"--json", "", "as JSON{}"};
inline constexpr const char* kOneObject = ": one object";  // of --json
inline constexpr const char* kObjectPerLine = ": one object; with --watch one object per line";
inline constexpr SharedOption kCsv{"--csv", "", "as CSV with a header{}"};
inline constexpr SharedOption kWatch{"--watch", "[TIME]", "show it again at this interval (default 1s)"};
inline constexpr const char* kScreenKeys =  // of a list with --watch
    "On a terminal --watch is a screen of its own: q leaves, arrows move, s sorts, / filters,\n";
inline constexpr SharedOption kQuiet{"-q,--quiet", "", "say less: {}"};
inline constexpr SharedOption kVerbose{"-v,--verbose", "", "say more: {}"};
inline constexpr SharedOption kLogFormat{"--log-format", "text|json", "text, or json: one object per line"};
inline constexpr SharedOption kFor{"--for", "TIME", "how long {}", "30s"};

// ---- traces
inline constexpr SharedOption kGap{"--gap", "TIME",
                                   "more time than this between two samples {} (default: 3 intervals, at least 1s)"};
inline constexpr SharedOption kColumns{"--columns", "ROLE=COLUMN,…",
                                       "which column is what, such as time=ts:ms,gpu=host+id (default: by its name)"};
inline constexpr SharedOption kHtml{"--html", "FILE", "also write a page{} (default: none)"};
inline constexpr SharedOption kPrice{"--price", "MONEY", "what an hour of a GPU costs"};
inline constexpr SharedOption kLabels{"--labels", "ROLE=LABEL,…", "which label of Prometheus is what{}"};
inline constexpr SharedOption kMatch{"--match", "MATCHERS",
                                     "of Prometheus: only series with these labels, such as {} (default: all)"};
inline constexpr SharedOption kHistory{"--history", "DIR", "{} (default: none)", "/var/lib/lull/history"};
inline constexpr SharedOption kTokenFile{"--token-file", "FILE", "a file with {} (default: none)"};
inline constexpr SharedOption kThreads{"--threads", "N", "how many cores to use, 8 at most; 0: all"};

}  // namespace shared

// The options of `lull run` and `lull watch`. The result is --idle, to ask whether it was given; `every` the same.
CommandLine::Option add_watch_options(CommandLine& line, WatchOptions& options, const Settings& known,
                                      const std::string& its_gpus, std::optional<CommandLine::Option>* every = nullptr);
// Of `--do park`.
struct ParkCommandOptions {
  std::string otherwise = "keep";
  std::string tool;
};
void add_park_options(CommandLine& line, ParkCommandOptions& options);
// `wanted`: something is to be parked, so the tool must be there.
Result<ParkOptions> settle_park(const ParkCommandOptions& options, const Settings& known, bool wanted);
// What --watch asks for, once the command line is parsed. A number: the exit status, all has been said.
std::optional<int> settle_interval(const CommandLine::Option& watch, const std::string& text,
                                   std::optional<Duration>& every);
// `lull jobs` and `lull leases`: a list of what `noun` names, once or live.
template <class Session, class ListSettings, class... More>
int list_command(CommandLine& line, const std::string& noun, int argc, char** argv, ListSettings settings,
                 More&&... more) {
  line.flag(shared::kJson, settings.json, shared::kObjectPerLine);
  std::string every;
  const CommandLine::Option watch = line.option(shared::kWatch, every).optional_value();
  line.footer(shared::kScreenKeys + ("e shows all that is known of the marked " + noun) +
              ", h all keys.\n\nExample:\n  lull " + noun + "s --watch");
  if (const auto status = line.parse(argc, argv)) return *status;
  if (const auto status = settle_interval(watch, every, settings.every)) return *status;
  const bool live = settings.every.has_value();
  Session session(std::move(settings), std::forward<More>(more)...);
  return show_list(session, live);
}
// How much is said.
void add_log_options(CommandLine& line, LogOptions& options, const std::string& quiet_says,
                     const std::string& verbose_says);

}  // namespace lull
