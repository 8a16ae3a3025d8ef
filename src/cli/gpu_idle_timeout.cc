// The drop-in gpu_idle_timeout: `lull run` with a command, `lull watch` without one, by
// the options and in the words of its documents.

#include <fmt/format.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/command.h"
#include "compat/gpu_idle_timeout.h"
#include "sense/sampler_options.h"
#include "session/machine.h"

namespace lull {
namespace {

void show_help(bool task) {
  (void)write_all(STDOUT_FILENO, fmt::format("{}{}", idle_timeout_usage(task), idle_timeout_help(task)));
}

// Bad values, as its original refuses them.
int refuse(bool task, std::string_view why) {
  ignore_sigpipe();
  show_help(task);
  (void)write_all(STDERR_FILENO, fmt::format("\nERROR: {}\n", why));
  return kIdleTimeoutRefused;
}

int launch(const IdleTimeoutOptions& options, const Policy& policy, const Clock& clock) {
  IdleTimeoutConsole console(options, clock);
  return on_machine(
      clock, [&](Machine& machine) { return RunSession(idle_timeout_run(options, policy), machine, console).run(); },
      kIdleTimeoutRefused);
}

int watch_task(const IdleTimeoutOptions& options, const Policy& policy, const Clock& clock) {
  const auto task = our_task();
  if (!task && options.actions.empty())
    return refuse(false,
                  "You must append the program and arguments you would like to execute, or say what to end (--do): "
                  "this is not a Determined task (DET_TASK_TYPE and DET_TASK_ID are not set).");
  auto settings = idle_timeout_watch(options, policy, task);
  if (!settings) {
    ignore_sigpipe();
    return complain(settings.error().message(), kIdleTimeoutRefused);
  }
  IdleTimeoutConsole console(options, clock);
  const int status =
      on_machine(clock, [&](Machine& machine) { return WatchSession(*std::move(settings), machine, console).run(); });
  return status == kExitFailure || status == kExitUsage ? kIdleTimeoutRefused : status;
}

}  // namespace

int gpu_idle_timeout_command(int argc, char** argv) {
  see_nvidia_only();
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_idle_timeout(words);
  if (!options || options->help) ignore_sigpipe();
  if (!options) {
    const Error& error = options.error();
    const bool task = our_task().has_value();
    if (error.errno_value == kIdleTimeoutRefused) return refuse(task, error.what);
    (void)write_all(STDERR_FILENO,
                    fmt::format("{}gpu_idle_timeout: error: {}\n", idle_timeout_usage(task), error.what));
    return kExitUsage;
  }
  if (options->help) {
    show_help(our_task().has_value());
    return 0;
  }
  const auto policy = Policy::parse(options->rule());
  if (!policy) return complain(policy.error().message(), kExitUsage);
  const SystemClock clock;
  return options->command.empty() ? watch_task(*options, *policy, clock) : launch(*options, *policy, clock);
}

}  // namespace lull
