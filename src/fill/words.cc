#include "fill/words.h"

#include <fmt/format.h>

#include <utility>

#include "base/option_value.h"
#include "base/process.h"
#include "base/text.h"
#include "base/units.h"
#include "fill/plan_file.h"

namespace lull {

Result<FillSettings> settle(const FillWords& words, std::vector<std::string> command) {
  FillSettings settings;
  auto rule = parse_rule(words.free);
  if (!rule) return std::unexpected(std::move(rule).error().during("--free"));
  settings.free = *std::move(rule);
  settings.every = TRY(duration_option("--every", words.every));
  if (settings.every < kQuickestSample) return fail("--every: at least " + format_duration(kQuickestSample));
  settings.confirm = TRY(duration_option("--confirm", words.confirm));
  settings.people.idle = TRY(duration_option("--user-idle", words.user_idle));
  settings.people.leave_out = words.leave_out;
  settings.ignore = words.ignore;
  settings.ignore_hidden = words.ignore_hidden;
  FillerSettings filler;
  const std::string& program = command[0];
  filler.name = program.substr(program.rfind('/') + 1);
  filler.command = std::move(command);
  filler.gpus = words.gpus;
  filler.per_gpu = words.per_gpu;
  filler.once = words.once;
  filler.log = words.log;
  auto yield = parse_yield(words.yield);
  if (!yield) return std::unexpected(std::move(yield).error().during("--yield"));
  filler.yield = *yield;
  filler.yield_command = words.yield_command;
  filler.resume_command = words.resume_command;
  filler.yield_limit = TRY(limit_option("--yield-limit", words.yield_limit));
  filler.stop_signal = TRY(signal_option("--stop-signal", words.signal));
  filler.grace = TRY(duration_option("--grace", words.grace));
  const auto nice = to_double(words.nice);
  if (!nice || *nice < -20 || *nice > 19)
    return fail(fmt::format("--nice: -20 to 19, not '{}'", printable(words.nice)));
  filler.nice = static_cast<int>(*nice);
  settings.fillers.push_back(std::move(filler));
  return settings;
}

}  // namespace lull
