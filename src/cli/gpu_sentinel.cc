// The drop-in gpu_sentinel: `lull watch` by the options of its document, its messages on stdout.

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "cli/command.h"
#include "compat/gpu_sentinel.h"
#include "sense/sampler_options.h"
#include "session/machine.h"

namespace lull {

int gpu_sentinel_command(int argc, char** argv) {
  see_nvidia_only();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_sentinel(words);
  if (!options || options->help) ignore_sigpipe();
  if (!options) {
    const Error& error = options.error();
    if (error.errno_value == kSentinelFailed) return complain(error.what, kSentinelFailed);
    (void)write_all(STDERR_FILENO, fmt::format("{}gpu_sentinel: error: {}\n", sentinel_usage(), error.what));
    return kExitUsage;
  }
  if (options->help) {
    (void)write_all(STDOUT_FILENO, fmt::format("{}{}", sentinel_usage(), sentinel_help()));
    return 0;
  }
  auto policy = Policy::parse(options->kill_rule(), options->arm_rule());
  if (!policy) return complain(policy.error().message(), kExitUsage);
  auto gpus = sentinel_devices(*options);
  if (!gpus) {
    ignore_sigpipe();
    return complain(gpus.error().message(), kSentinelFailed);
  }
  const SystemClock clock;
  SentinelConsole console(*options, gpus->absent, clock, !policy->arm);
  const int status = on_machine(clock, [&](Machine& machine) {
    return WatchSession(sentinel_settings(*options, *std::move(policy), *gpus), machine, console).run();
  });
  return status == kExitFailure ? kSentinelFailed : status;
}

}  // namespace lull
