// The drop-in gpuselect: its words, our way of choosing and holding.

#include "compat/gpuselect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "base/fd.h"
#include "cli/command.h"
#include "compat/gpuselect_pick.h"
#include "lease/visibility.h"
#include "session/loop_sampler.h"
#include "session/pick_session.h"
#include "session/picking.h"

namespace lull {

namespace {

constexpr int kFailed = 1;  // the predecessor's only status but 0 and argparse's 2

int say(std::string_view what, int status) {
  fmt::print(stderr, "gpuselect: {}\n", what);
  return status;
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
    if (const auto end = cannot_run(options->command.front())) return ended(*end);
  const TellPicker tell = [](const std::string& text) { complain(text); };
  const SystemClock clock;
  const auto senses = LoopSenses::open(clock);
  if (!senses) return say(senses.error().message(), kFailed);
  const auto world = pick_world(**senses, false, tell);  // its -q is about the choice alone
  PickSession session((*senses)->loop(), *world, gpuselect_settings(*options));
  const auto picked = session.run();
  if (options->debug)
    for (const std::string& line : gpuselect_debug(session.picker())) fmt::print(stderr, "{}\n", line);
  if (!picked) {
    (void)write_all(STDERR_FILENO, "gpuselect: " + gpuselect_refusal(picked.error(), *options));
    return kFailed;
  }
  const std::string value = visible_value(*picked, false);
  if (options->debug) fmt::print(stderr, "CUDA_VISIBLE_DEVICES={}\n", value);
  if (!options->command.empty()) {
    (void)write_all(STDOUT_FILENO, gpuselect_running(options->command) + "\n");
    ::setenv("PYTHONUNBUFFERED", "1", 1);
    return ended(run_picked(session.picker(), *picked, {.quiet = options->quiet}, tell));
  }
  if (!options->quiet)
    if (const auto written = write_all(STDOUT_FILENO, value + "\n"); !written)
      return say("stdout: " + written.error().message(), kFailed);
  return 0;
}

}  // namespace lull
