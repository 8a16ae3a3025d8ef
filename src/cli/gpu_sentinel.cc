// The drop-in gpu_sentinel: `lull watch` by the options of its document, its messages on stdout.

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/command.h"
#include "cli/watch_session.h"
#include "compat/gpu_sentinel.h"

namespace lull {
namespace {

class SentinelVoice final : public WatchVoice {
 public:
  explicit SentinelVoice(const SentinelOptions& options) : options_(options) {}

  void started(const WatchSettings&) override { print(STDOUT_FILENO, sentinel_idle(options_)); }
  void said(const Say& say) override {
    switch (say.about) {
      case Say::About::armed: return print(STDOUT_FILENO, sentinel_armed(options_));
      case Say::About::scope: return;
      default: return print(STDERR_FILENO, say.text);
    }
  }
  void firing(const FiringFacts&, bool) override { print(STDOUT_FILENO, sentinel_triggered(options_)); }
  void note(Level level, std::string_view, const std::string& text) override {
    if (level >= Level::warning) print(STDERR_FILENO, text);
  }

 private:
  // One write a line: whoever reads our stdout gets it at once.
  static void print(int fd, const std::string& text) { (void)write_all(fd, "gpu_sentinel: " + text + "\n"); }

  const SentinelOptions& options_;
};

}  // namespace

int gpu_sentinel_command(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_sentinel(words);
  if (!options) {
    fmt::print(stderr, "{}gpu_sentinel: error: {}\n", sentinel_usage(), options.error().message());
    return kExitUsage;
  }
  if (options->help) {
    fmt::print("{}{}", sentinel_usage(), sentinel_help());
    return 0;
  }
  auto policy = Policy::parse(options->kill_rule(), options->arm_rule());
  if (!policy) return complain(policy.error().message(), kExitUsage);
  WatchSettings settings;
  settings.policy = *std::move(policy);
  settings.gpus = options->gpus();
  settings.every = std::chrono::seconds(1);
  settings.missing = options->ignore_missing ? WhenMissing::ignore : WhenMissing::unknown;
  const std::string action = options->kill_action == "end_process" ? "exit" : options->kill_action;
  settings.actions.push_back(*parse_action(action));
  const SystemClock clock;
  SentinelVoice voice(*options);
  WatchSession session(std::move(settings), voice, clock);
  return session.run();
}

}  // namespace lull
