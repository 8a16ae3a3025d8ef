// The drop-in gpu_idle_timeout: `lull run` with a command, `lull watch` without one, by
// the options and in the words of its documents.

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "act/determined.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/command.h"
#include "compat/gpu_idle_timeout.h"
#include "session/machine.h"
#include "session/run_session.h"
#include "session/watch_session.h"
#include "view/events.h"
#include "view/news.h"

namespace lull {
namespace {

constexpr int kIdleStatus = 1;
constexpr int kRefused = 1;
constexpr Duration kGrace = std::chrono::seconds(3);         // for signal handlers
constexpr std::string_view kBeforeTheKill = "sleep 5";       // for whoever reads the log of the task
constexpr unsigned kTries = 20;                              // of killing a task
constexpr Duration kBetweenTries = std::chrono::minutes(1);  // at most

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
  void sampled(const Sampled& sampled) const {
    if (!options_.debug || sampled.judged.delayed(sampled.snapshot.at)) return;
    for (const Device& device : sampled.judged.scope())
      if (const Reading* reading = sampled.snapshot.find(device.id()))
        log("DEBUG", idle_timeout_usage_of(device.uuid, (*reading)[Metric::util]));
  }
  void fired(const FiringFacts& facts) const {
    std::vector<std::string> uuids;
    for (const Device& device : facts.scope) uuids.push_back(device.uuid);
    log("ERROR", idle_timeout_fired(options_, uuids));
  }
  void happened(const Event& event) const {
    const bool trouble = is_trouble(event) || std::holds_alternative<NotJudged>(event.what);
    if (trouble || options_.debug) log(trouble ? "WARNING" : "INFO", to_words(event));
  }
  void did(const News& news) const { note(level_of(news), event_word(news), to_words(news)); }
  void note(Level level, std::string_view event, const std::string& text) const {
    // What was announced and is not done is said too.
    if (level >= Level::warning || event == "called-off") log(level == Level::important ? "ERROR" : "WARNING", text);
  }

 private:
  const IdleTimeoutOptions& options_;
  const Clock& clock_;
};

class LaunchVoice final : public Sink {
 public:
  LaunchVoice(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), log_(options, clock) {}
  void started() override { log_.log("INFO", idle_timeout_started(options_)); }
  void ticked(std::uint64_t tick) override { log_.ticked(tick); }
  void sampled(const Sampled& sampled, std::optional<Instant>) override { log_.sampled(sampled); }
  void happened(const Event& event) override { log_.happened(event); }
  void firing(const FiringFacts& facts, bool) override {
    log_.fired(facts);
    if (options_.signal == 0) return log_.log("ERROR", idle_timeout_killing());
    if (options_.signal_children) {
      std::vector<IdleTimeoutMember> members;
      for (const MemberView& one : facts.members)
        members.push_back({one.entry.pid, one.depth, one.unread ? one.entry.name : one.command});
      for (const std::string& line : idle_timeout_children(options_.signal, members)) log_.log("INFO", line);
    }
    log_.log("INFO", idle_timeout_signalling(options_.signal, facts.job.value_or(0)));
  }
  void did(const News& news) override {
    if (std::holds_alternative<Killing>(news)) return log_.log("ERROR", idle_timeout_killing());
    log_.did(news);
  }
  void note(Level level, std::string_view event, const std::string& text) override { log_.note(level, event, text); }

 private:
  const IdleTimeoutOptions& options_;
  IdleTimeoutLog log_;
};

class TaskVoice final : public Sink {
 public:
  TaskVoice(const IdleTimeoutOptions& options, const Clock& clock) : options_(options), log_(options, clock) {}
  void started() override { log_.log("INFO", idle_timeout_started(options_)); }
  void ticked(std::uint64_t tick) override { log_.ticked(tick); }
  void sampled(const Sampled& sampled, std::optional<Instant>) override { log_.sampled(sampled); }
  void happened(const Event& event) override { log_.happened(event); }
  void firing(const FiringFacts& facts, bool) override { log_.fired(facts); }
  void did(const News& news) override { log_.did(news); }
  void note(Level level, std::string_view event, const std::string& text) override { log_.note(level, event, text); }

 private:
  const IdleTimeoutOptions& options_;
  IdleTimeoutLog log_;
};

SessionSettings common_settings(const IdleTimeoutOptions& options, const Policy& policy) {
  SessionSettings settings;
  settings.policy = policy;
  settings.gpus = options.gpus;
  settings.every = options.every();
  settings.delay = options.delay();
  return settings;
}

int launch(const IdleTimeoutOptions& options, const Policy& policy, const Clock& clock) {
  RunSettings settings;
  settings.command = options.command;
  settings.common = common_settings(options, policy);
  settings.common.require_gpu = true;  // its document: it needs nvidia-smi
  settings.refused_status = kRefused;
  settings.idle_status = kIdleStatus;
  settings.ending.signal = options.signal;
  settings.ending.grace = kGrace;
  settings.ending.to_tree = options.signal_children;
  settings.ending.order = SignalOrder::deepest_first;
  LaunchVoice voice(options, clock);
  auto machine = Machine::open(clock);
  if (!machine) return complain(machine.error().message(), kRefused);
  return ended(RunSession(std::move(settings), **machine, voice).run());
}

// As Python does: the status counts, whether somebody reads what we say or not. A session does so itself.
void ignore_sigpipe() { std::signal(SIGPIPE, SIG_IGN); }

void show_help(bool task) {
  (void)write_all(STDOUT_FILENO, fmt::format("{}{}", idle_timeout_usage(task), idle_timeout_help(task)));
}

// Bad values, as its original refuses them.
int refuse(bool task, std::string_view why) {
  ignore_sigpipe();
  show_help(task);
  (void)write_all(STDERR_FILENO, fmt::format("\nERROR: {}\n", why));
  return kRefused;
}

std::optional<DeterminedTask> our_task() {
  return determined_task([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

// Says so, waits for those who read it, kills. In between a new sample has to say yes once more.
Result<std::vector<ActionWord>> task_actions(const DeterminedTask& task) {
  const std::string kill = shell_line(TRY(determined_kill(task)));
  if (!is_executable("det")) return fail("`det` is not in PATH: a Determined task cannot be ended");
  const auto run = [](std::string_view line) {
    return ActionWord{.kind = ActionWord::Kind::exec, .text = std::string(line), .argument = std::string(line)};
  };
  return std::vector<ActionWord>{run(kBeforeTheKill), run(kill)};
}

Result<std::vector<ActionWord>> actions_of(const IdleTimeoutOptions& options,
                                           const std::optional<DeterminedTask>& task) {
  if (options.actions.empty()) return task_actions(*task);
  std::vector<ActionWord> actions;
  for (const std::string& text : options.actions) actions.push_back(TRY(parse_action(text)));
  return actions;
}

int watch_task(const IdleTimeoutOptions& options, const Policy& policy, const Clock& clock) {
  const auto task = our_task();
  if (!task && options.actions.empty())
    return refuse(false,
                  "You must append the program and arguments you would like to execute, or say what to end (--do): "
                  "this is no Determined task (DET_TASK_TYPE and DET_TASK_ID are not set).");
  auto actions = actions_of(options, task);
  if (!actions) {
    ignore_sigpipe();
    return complain(actions.error().message(), kRefused);
  }
  WatchSettings settings;
  settings.common = common_settings(options, policy);
  settings.of_job = true;
  settings.actions = *std::move(actions);
  if (settings.actions.back().kind != ActionWord::Kind::exit)
    settings.actions.push_back({.kind = ActionWord::Kind::exit, .text = "exit", .argument = "", .status = kIdleStatus});
  settings.how.ending.signal = SIGTERM;
  // A master that does not answer now may do so later.
  settings.retries.most = kTries - 1;
  settings.retries.after = std::clamp<Duration>(options.every(), std::chrono::seconds(1), kBetweenTries);
  TaskVoice voice(options, clock);
  auto machine = Machine::open(clock);
  if (!machine) return complain(machine.error().message(), kRefused);
  const int status = ended(WatchSession(std::move(settings), **machine, voice).run());
  return status == kExitFailure || status == kExitUsage ? kRefused : status;
}

}  // namespace

int gpu_idle_timeout_command(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  const auto options = parse_idle_timeout(words);
  if (!options || options->help) ignore_sigpipe();
  if (!options) {
    const Error& error = options.error();
    const bool task = our_task().has_value();
    if (error.errno_value == kRefused) return refuse(task, error.what);
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
