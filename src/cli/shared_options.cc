#include "cli/shared_options.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/units.h"
#include "cli/command.h"
#include "park/tool.h"
#include "session/live_view.h"

namespace lull {

CommandLine::Option add_watch_options(CommandLine& line, WatchOptions& options, const Settings& known,
                                      const std::string& its_gpus, std::optional<CommandLine::Option>* every) {
  const Settings::NamedRule* named = known.find_rule(options.idle);
  const CommandLine::Option idle =
      line.option(shared::kIdle, options.idle, std::string("that must hold") + shared::kIdleForms,
                  named == nullptr ? "" : fmt::format("{}: {}", named->name, named->value.text));
  line.option(shared::kArm, options.arm);
  line.option(shared::kDelay, options.delay, "the start");
  const CommandLine::Option how_often = line.option(shared::kEvery, options.every);
  if (every != nullptr) *every = how_often;
  line.option(shared::kGpus, options.gpus, fmt::format("which GPUs count (default: {})", its_gpus));
  line.each("--also", options.also,
            "work outside the job's processes that counts as the job's own and is never ended (default: none)")
      .value("PID|CGROUP|CONTAINER");
  line.option(shared::kMissing, options.missing);
  line.each(shared::kSignalFrom, options.signal_from);
  add_log_options(line, options.console, "only what is done", "each reading too");
  return idle;
}

std::optional<int> settle_interval(const CommandLine::Option& watch, const std::string& text,
                                   std::optional<Duration>& every) {
  if (!watch.given()) return std::nullopt;
  const auto interval = live_interval(text);
  if (!interval) return complain(interval.error().message(), kExitUsage);
  every = *interval;
  return std::nullopt;
}

void add_log_options(CommandLine& line, LogOptions& options, const std::string& quiet_says,
                     const std::string& verbose_says) {
  line.flag(shared::kQuiet, options.quiet, quiet_says);
  line.flag(shared::kVerbose, options.verbose, verbose_says);
  line.option(shared::kLogFormat, options.log_format);
}

void add_park_options(CommandLine& line, ParkCommandOptions& options) {
  line.option(shared::kParkElse, options.otherwise, "a job that cannot be parked: keep it running, or end it");
  line.option(shared::kCudaCheckpoint, options.tool, shared::kConfiguredTool);
}

Result<ParkOptions> settle_park(const ParkCommandOptions& options, const Settings& known, bool wanted) {
  ParkOptions park;
  constexpr std::array<std::string_view, 2> kElse = {"end", "keep"};
  park.else_end = TRY(choice_option("--park-else", options.otherwise, kElse)) == 0;
  park.tool = options.tool.empty() ? known.text(Setting::cuda_checkpoint) : options.tool;
  if (!wanted) return park;
  park.tool = TRY(CheckpointTool::find(park.tool));
  return park;
}

}  // namespace lull
