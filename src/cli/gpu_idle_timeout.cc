// The drop-in gpu_idle_timeout: `lull run` with a command, `lull watch` without one, by
// the options and in the words of its documents.

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/command.h"
#include "cli/run_session.h"
#include "cli/watch_session.h"
#include "compat/gpu_idle_timeout.h"

namespace lull {
namespace {

constexpr int kIdleStatus = 1;
constexpr int kRefused = 1;

// What both forms log, in the predecessor's own lines.
class IdleTimeoutLog {
 public:
  IdleTimeoutLog(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), clock_(clock) {}

  void log(std::string_view level, std::string_view text) const {
    (void)write_all(STDERR_FILENO, idle_timeout_log(clock_.wall(), level, text));
  }
  void ticked(std::uint64_t tick) const {
    if (const auto line = idle_timeout_waiting(options_, tick)) log("INFO", *line);
  }
  void sampled(const Snapshot& snapshot, const Watcher& watcher) const {
    if (!options_.debug || watcher.delayed(snapshot.at)) return;
    const auto& devices = snapshot.inventory->devices;
    for (const Device& device : watcher.scope())
      for (std::size_t i = 0; i < devices.size(); ++i)
        if (devices[i].uuid == device.uuid)
          log("DEBUG", idle_timeout_usage_of(device.uuid, snapshot.readings[i][Metric::util]));
  }
  void fired(const FiringFacts& facts) const {
    std::vector<std::string> uuids;
    for (const Device& device : facts.scope) uuids.push_back(device.uuid);
    log("ERROR", idle_timeout_fired(options_, uuids));
  }
  void said(const Say& say) const {
    const bool trouble =
        say.about == Say::About::no_gpu || say.about == Say::About::cannot_judge || say.about == Say::About::not_judged;
    if (trouble || options_.debug) log(trouble ? "WARNING" : "INFO", say.text);
  }
  void note(Level level, const std::string& text) const {
    if (level >= Level::warning) log(level == Level::important ? "ERROR" : "WARNING", text);
  }

 private:
  const IdleTimeoutOptions& options_;
  const Clock& clock_;
};

class LaunchVoice final : public RunVoice {
 public:
  LaunchVoice(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), log_(options, clock) {}
  void started(const RunSettings&) override { log_.log("INFO", idle_timeout_started(options_)); }
  void ticked(std::uint64_t tick) override { log_.ticked(tick); }
  void sampled(const Snapshot& snapshot, const Watcher& watcher) override { log_.sampled(snapshot, watcher); }
  void said(const Say& say) override { log_.said(say); }
  void firing(const FiringFacts& facts, bool) override {
    log_.fired(facts);
    if (!options_.signal) log_.log("ERROR", idle_timeout_killing());
  }
  void note(Level level, std::string_view event, const std::string& text) override {
    if (event == "kill") {
      log_.log("ERROR", idle_timeout_killing());
    } else {
      log_.note(level, text);
    }
  }

 private:
  const IdleTimeoutOptions& options_;
  IdleTimeoutLog log_;
};

class TaskVoice final : public WatchVoice {
 public:
  TaskVoice(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), log_(options, clock) {}
  void started(const WatchSettings&) override { log_.log("INFO", idle_timeout_started(options_)); }
  void ticked(std::uint64_t tick) override { log_.ticked(tick); }
  void sampled(const Snapshot& snapshot, const Watcher& watcher, std::optional<Instant>) override {
    log_.sampled(snapshot, watcher);
  }
  void said(const Say& say) override { log_.said(say); }
  void firing(const FiringFacts& facts, bool) override { log_.fired(facts); }
  void note(Level level, std::string_view, const std::string& text) override { log_.note(level, text); }

 private:
  const IdleTimeoutOptions& options_;
  IdleTimeoutLog log_;
};

int launch(const IdleTimeoutOptions& options, const Policy& policy, const Clock& clock) {
  RunSettings settings;
  settings.command = options.command;
  settings.policy = policy;
  settings.gpus = options.gpus;
  settings.every = options.every();
  settings.delay = options.delay();
  settings.require_gpu = true;  // its document: it needs nvidia-smi
  settings.refused_status = kRefused;
  settings.idle_status = kIdleStatus;
  settings.ending.signal = options.signal.value_or(0);
  settings.ending.to_tree = options.signal_children;
  settings.ending.order = SignalOrder::deepest_first;
  LaunchVoice voice(options, clock);
  RunSession session(std::move(settings), voice, clock);
  return session.run();
}

int watch_task(const IdleTimeoutOptions& options, const Policy& policy, const Clock& clock) {
  WatchSettings settings;
  settings.policy = policy;
  settings.gpus = options.gpus;
  settings.every = options.every();
  settings.delay = options.delay();
  settings.of_job = true;
  std::vector<std::string> actions = options.actions;
  if (actions.empty()) actions.emplace_back("determined");
  for (const std::string& text : actions) {
    auto action = parse_action(text);
    if (!action) return complain(action.error().message(), kExitUsage);
    settings.actions.push_back(*std::move(action));
  }
  if (settings.actions.back().kind != Action::Kind::exit)
    settings.actions.push_back({.kind = Action::Kind::exit, .text = "exit", .argument = "", .status = kIdleStatus});
  settings.how.ending.signal = options.signal.value_or(SIGTERM);
  // A master that does not answer now may do so later: it goes on trying, and says so.
  settings.how.retries = 1'000'000;
  settings.how.retry_after = std::max<Duration>(options.every(), std::chrono::seconds(1));
  TaskVoice voice(options, clock);
  WatchSession session(std::move(settings), voice, clock);
  return session.run();
}

}  // namespace

int gpu_idle_timeout_command(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_idle_timeout(words);
  if (!options) {
    fmt::print(stderr, "{}gpu_idle_timeout: error: {}\n", idle_timeout_usage(), options.error().message());
    return kExitUsage;
  }
  if (options->help) {
    fmt::print("{}{}", idle_timeout_usage(), idle_timeout_help());
    return 0;
  }
  const auto policy = Policy::parse(options->rule());
  if (!policy) return complain(policy.error().message(), kExitUsage);
  const SystemClock clock;
  return options->command.empty() ? watch_task(*options, *policy, clock) : launch(*options, *policy, clock);
}

}  // namespace lull
