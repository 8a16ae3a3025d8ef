// The drop-in gpuselect: its words, our way of choosing and holding.

#include "compat/gpuselect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/pick.h"

namespace lull {

namespace {

constexpr int kFailed = 1;  // the predecessor's only status but 0 and argparse's 2

int say(std::string_view what, int status) {
  fmt::print(stderr, "gpuselect: {}\n", what);
  return status;
}

// Who says how full the memory may be gets that: -m 100 is any. What an empty card shows is never too much.
WhereAnswer memory_fits(const Reading& reading, unsigned most) {
  const double used = reading[Metric::mem_used];
  const double total = reading[Metric::mem_total];
  if (most >= 100) return {true, ""};
  if (std::isnan(used) || std::isnan(total)) {
    if (reading.why_missing(Metric::mem_used) == Absence::not_supported) return {true, ""};
    return {std::nullopt, fmt::format("mem_used cannot be read ({})", words(reading.why_missing(Metric::mem_used)))};
  }
  const double empty = reading.display_active == true ? kEmptyDesktop : kEmptyCard;
  if (used <= std::max(empty, total * most / 100)) return {true, ""};
  return {false, fmt::format("{:.3g} % of its memory in use; wanted at most {} %", used / total * 100, most)};
}

PickSettings settings_of(const GpuselectOptions& options) {
  PickSettings settings;
  settings.count = options.count;
  for (const long device : options.devices)
    settings.gpus += fmt::format("{}{}", settings.gpus.empty() ? "" : ",", device);
  settings.keep_to_visible = false;  // the predecessor looks at every GPU
  settings.wishes.name = options.name.value_or("");
  settings.wishes.exact_name = true;
  // 0 is the usual limit and not one that was asked for: MIG devices are judged without it.
  if (options.util > 0) settings.wishes.util = Limit::of(options.util);
  if (options.mem_util) {
    if (*options.mem_util > 0) settings.wishes.mem_util = Limit::of(*options.mem_util);
    settings.wishes.mem_used = Limit::off();
    if (options.processes == 0)
      settings.wishes.where = [most = *options.mem_util](const Reading& reading) { return memory_fits(reading, most); };
  }
  if (options.processes > 0) {
    settings.wishes.procs = Limit::of(options.processes);
    settings.wishes.mem_used = Limit::off();  // they are welcome with what they hold
  }
  // Beside so many others, as the predecessor counts. Who came first has nothing to say about it there: whoever asks
  // for a GPU with at most N on it may come. `lull pick` never shares what it was not asked to share.
  settings.share = std::min(options.processes, kMostHolders - 1) + 1;
  settings.patience = kMostHolders;
  settings.command = options.command;
  return settings;
}

int refuse(const Refusal& refusal, const GpuselectOptions& options) {
  if (refusal.wanted == 0) {
    // A device that is not there, as the predecessor words it.
    for (const long device : options.devices)
      if (refusal.kind == Refusal::usage && refusal.what.starts_with(fmt::format("no GPU {}:", device)))
        return say(fmt::format("Invalid device ID {} ({})", device, refusal.what), kFailed);
    return say(refusal.what, kFailed);
  }
  std::string text =
      fmt::format("gpuselect: Requested {} GPUs, but {} matched filters\n", refusal.wanted, refusal.fitting);
  for (const std::string& reason : refusal.reasons) text += reason + '\n';
  (void)write_all(STDERR_FILENO, text);
  return kFailed;
}

}  // namespace

int gpuselect_command(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_gpuselect(words);
  if (!options) return say(options.error().what, options.error().errno_value);
  if (options->help) {
    fmt::print("{}", gpuselect_help());
    return 0;
  }
  if (!options->command.empty())
    if (const auto status = cannot_run(options->command.front())) return *status;
  const auto world = pick_world(false);  // its -q is about the choice alone
  Picker picker(*world, settings_of(*options));
  const auto picked = picker.pick();
  if (options->debug)
    for (const std::string& line : debug_lines(picker)) fmt::print(stderr, "{}\n", line);
  if (!picked) return refuse(picked.error(), *options);
  const std::string value = visible_value(*picked, false);
  if (options->debug) fmt::print(stderr, "CUDA_VISIBLE_DEVICES={}\n", value);
  if (!options->command.empty()) {
    (void)write_all(STDOUT_FILENO, gpuselect_running(options->command) + "\n");
    ::setenv("PYTHONUNBUFFERED", "1", 1);
    return run_picked(picker, *picked, {.quiet = options->quiet});
  }
  if (!options->quiet)
    if (const auto written = write_all(STDOUT_FILENO, value + "\n"); !written)
      return say("stdout: " + written.error().message(), kFailed);
  return 0;
}

}  // namespace lull
