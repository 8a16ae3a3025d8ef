// The drop-in gpuselect: its words, our way of choosing and holding.

#include "compat/gpuselect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

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

PickSettings settings_of(const GpuselectOptions& options) {
  PickSettings settings;
  settings.count = options.count;
  for (const unsigned device : options.devices)
    settings.gpus += fmt::format("{}{}", settings.gpus.empty() ? "" : ",", device);
  settings.keep_to_visible = false;  // the predecessor looks at every GPU
  settings.wishes.name = options.name.value_or("");
  // 0 is the usual limit and not one that was asked for: MIG devices are judged without it.
  if (options.util > 0) settings.wishes.util = Limit::of(options.util);
  if (options.mem_util > 0) settings.wishes.mem_util = Limit::of(options.mem_util);
  if (options.processes > 0) {
    settings.wishes.procs = Limit::of(options.processes);
    settings.wishes.mem_used = Limit::off();  // they are welcome with what they hold
  }
  settings.command = options.command;
  settings.quiet = options.quiet;
  return settings;
}

int refuse(const Refusal& refusal, const GpuselectOptions& options) {
  if (refusal.wanted == 0) {
    // A device that is not there, as the predecessor words it.
    for (const unsigned device : options.devices)
      if (refusal.status == kExitUsage && refusal.what.find(fmt::format("{}", device)) != std::string::npos)
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
  Picker picker(settings_of(*options));
  const auto picked = picker.pick();
  if (options->debug)
    for (const std::string& line : picker.debug_lines()) fmt::print(stderr, "{}\n", line);
  if (!picked) return refuse(picked.error(), *options);
  const std::string value = visible_value(*picked, false);
  if (options->debug) fmt::print(stderr, "CUDA_VISIBLE_DEVICES={}\n", value);
  if (!options->command.empty()) return run_picked(picker, *picked);
  if (!options->quiet)
    if (const auto written = write_all(STDOUT_FILENO, value + "\n"); !written)
      return say("stdout: " + written.error().message(), kFailed);
  return 0;
}

}  // namespace lull
