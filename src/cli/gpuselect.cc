// The drop-in gpuselect: its words, our way of choosing and holding.

#include "compat/gpuselect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "base/fd.h"
#include "base/random.h"
#include "cli/command.h"
#include "lease/visibility.h"
#include "sense/sampler_options.h"
#include "session/machine.h"
#include "session/pick_session.h"

namespace lull {

namespace {

constexpr int kGpuselectFailed = 1;  // the predecessor's only status but 0 and argparse's 2

int say(std::string_view what, int status) {
  fmt::print(stderr, "gpuselect: {}\n", what);
  return status;
}

}  // namespace

int gpuselect_command(int argc, char** argv) {
  see_nvidia_only();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_gpuselect(words);
  if (!options) {
    if (options.error().errno_value != kExitUsage) return say(options.error().what, kGpuselectFailed);
    fmt::print(stderr, "{}gpuselect: error: {}\n", gpuselect_usage(), options.error().what);
    return kExitUsage;
  }
  if (options->help) {
    fmt::print("{}{}", gpuselect_usage(), gpuselect_help());
    return 0;
  }
  if (!options->command.empty())
    if (const auto end = cannot_run(options->command.front())) return ended(*end);
  const TellPicker tell = [](const std::string& text) { complain(text); };
  const SystemClock clock;
  const auto senses = LoopSenses::open(clock);
  if (!senses) return say(senses.error().message(), kGpuselectFailed);
  if (options->debug) fmt::print(stderr, "{}\n", gpuselect_asked(*options));
  if (const std::string warning = gpuselect_warning(*options); !warning.empty()) fmt::print(stderr, "{}\n", warning);
  const auto world = pick_world(**senses, false, tell);  // its -q is about the choice alone
  PickSession session((*senses)->loop(), *world, gpuselect_settings(*options));
  auto picked = session.run();
  if (options->debug)
    for (const std::string& line : gpuselect_debug(session.picker(), *options)) fmt::print(stderr, "{}\n", line);
  if (!picked) {
    if (options->debug && picked.error().wanted > 0)
      fmt::print(stderr, "Requested {} GPUs, but {} matched filters\n", picked.error().wanted, picked.error().fitting);
    (void)write_all(STDERR_FILENO, "gpuselect: " + gpuselect_refusal(picked.error(), *options));
    return kGpuselectFailed;
  }
  // In any order, as its document has it: the first is the one that programs use who know only one.
  std::ranges::shuffle(picked->devices, std::mt19937_64(random_bits()));
  const std::string value = visible_value(*picked, false);
  if (options->debug) fmt::print(stderr, "CUDA_VISIBLE_DEVICES={}\n", value);
  if (!options->command.empty()) {
    (void)write_all(STDOUT_FILENO, gpuselect_running(options->command) + "\n");
    ::setenv("PYTHONUNBUFFERED", "1", 1);
    return ended(run_picked(session.picker(), *picked, {.quiet = options->quiet}, tell));
  }
  if (!options->quiet)
    if (const auto written = write_all(STDOUT_FILENO, value + "\n"); !written)
      return say("stdout: " + written.error().message(), kGpuselectFailed);
  return 0;
}

}  // namespace lull
