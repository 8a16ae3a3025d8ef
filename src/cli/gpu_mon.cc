// The drop-in gpu_mon: `lull fill` by the file of its document, its lines on stderr.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "compat/gpu_mon.h"
#include "sense/sampler_options.h"
#include "session/machine.h"

namespace lull {
namespace {

constexpr int kGpuMonFailed = 1;
constexpr std::size_t kLongestFile = std::size_t{1} << 20;

}  // namespace

int gpu_mon_command(int argc, char** argv) {
  see_nvidia_only();
  ignore_sigpipe();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_mon(words);
  if (!options) {
    (void)write_all(STDERR_FILENO, fmt::format("{}gpu_mon.py: error: {}\n", mon_usage(), options.error().what));
    return kExitUsage;
  }
  if (options->help) {
    (void)write_all(STDOUT_FILENO, fmt::format("{}{}", mon_usage(), mon_help()));
    return 0;
  }
  const auto text = read_file(AT_FDCWD, expand_user(options->file), kLongestFile);
  if (!text) {
    if (text.error().errno_value == ENOENT)
      return complain("FileNotFoundError: Configuration not found: " + printable(options->file), kGpuMonFailed);
    return complain(text.error().message(), kGpuMonFailed);
  }
  const auto settings = parse_mon_config(*text);
  if (!settings) return complain(fmt::format("{}: {}", printable(options->file), settings.error().what), kGpuMonFailed);

  const SystemClock clock;
  MonConsole console(*settings, clock);
  auto machine = Machine::open(clock);
  if (!machine) return complain(machine.error().message(), kGpuMonFailed);
  const SessionEnd end = FillSession(mon_fill_settings(*settings), {}, **machine, console).run();
  if (end.status == 128 + SIGINT) {
    console.interrupted();
    return 0;
  }
  const int status = ended(end);
  return status == kExitFailure ? kGpuMonFailed : status;
}

}  // namespace lull
