#include "compat/gpu_idle_timeout_session.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "act/spawn.h"
#include "base/fd.h"
#include "view/events.h"
#include "view/news.h"

namespace lull {
namespace {

constexpr int kIdleStatus = 1;
constexpr Duration kGrace = std::chrono::seconds(3);         // for signal handlers
constexpr std::string_view kBeforeTheKill = "sleep 5";       // for whoever reads the log of the task
constexpr unsigned kTries = 20;                              // of killing a task
constexpr Duration kBetweenTries = std::chrono::minutes(1);  // at most

SessionSettings common_settings(const IdleTimeoutOptions& options, const Policy& policy) {
  SessionSettings settings;
  settings.policy = policy;
  settings.gpus = options.gpus;
  settings.every = options.every();
  settings.delay = options.delay();
  return settings;
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

}  // namespace

void IdleTimeoutVoice::log(std::string_view level, std::string_view text) const {
  (void)write_all(STDERR_FILENO, idle_timeout_log(clock_.wall(), level, text));
}

void IdleTimeoutVoice::ticked(std::uint64_t tick) {
  if (const auto line = idle_timeout_waiting(options_, tick)) log("INFO", *line);
}

void IdleTimeoutVoice::sampled(const Sampled& sampled, std::optional<Instant>) {
  if (!options_.debug || sampled.judged.delayed(sampled.snapshot.at)) return;
  for (const Device& device : sampled.judged.scope())
    if (const Reading* reading = sampled.snapshot.find(device.id()))
      log("DEBUG", idle_timeout_usage_of(device.uuid, (*reading)[Metric::util]));
}

void IdleTimeoutVoice::happened(const Event& event) {
  const bool trouble = is_trouble(event) || std::holds_alternative<NotJudged>(event.what);
  if (trouble || options_.debug) log(trouble ? "WARNING" : "INFO", to_words(event));
}

void IdleTimeoutVoice::firing(const FiringFacts& facts, bool) {
  std::vector<std::string> uuids;
  for (const Device& device : facts.scope) uuids.push_back(device.uuid);
  log("ERROR", idle_timeout_fired(options_, uuids));
  if (launches()) say_signals(facts);
}

void IdleTimeoutVoice::say_signals(const FiringFacts& facts) const {
  if (options_.signal == 0) return log("ERROR", idle_timeout_killing());
  if (options_.signal_children) {
    std::vector<IdleTimeoutMember> members;
    for (const MemberView& one : facts.members)
      members.push_back({one.entry.pid, one.depth, one.unread ? one.entry.name : one.command});
    for (const std::string& line : idle_timeout_children(options_.signal, members)) log("INFO", line);
  }
  log("INFO", idle_timeout_signalling(options_.signal, facts.job.value_or(0)));
}

void IdleTimeoutVoice::did(const News& news) {
  if (launches() && std::holds_alternative<Killing>(news)) return log("ERROR", idle_timeout_killing());
  note(level_of(news), event_word(news), to_words(news));
}

void IdleTimeoutVoice::note(Level level, std::string_view event, const std::string& text) {
  // What was announced and is not done is said too.
  if (level >= Level::warning || event == "called-off") log(level == Level::important ? "ERROR" : "WARNING", text);
}

RunSettings idle_timeout_run(const IdleTimeoutOptions& options, const Policy& policy) {
  RunSettings settings;
  settings.command = options.command;
  settings.common = common_settings(options, policy);
  settings.common.require_gpu = true;  // its document: it needs nvidia-smi
  settings.refused_status = kIdleTimeoutRefused;
  settings.idle_status = kIdleStatus;
  settings.ending.signal = options.signal;
  settings.ending.grace = kGrace;
  settings.ending.look_before_kill = false;  // as the original
  settings.ending.to_tree = options.signal_children;
  settings.ending.order = SignalOrder::deepest_first;
  return settings;
}

std::optional<DeterminedTask> our_task() {
  return determined_task([](const char* name) -> std::optional<std::string> {
    const char* value = std::getenv(name);
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
  });
}

Result<WatchSettings> idle_timeout_watch(const IdleTimeoutOptions& options, const Policy& policy,
                                         const std::optional<DeterminedTask>& task) {
  WatchSettings settings;
  settings.common = common_settings(options, policy);
  settings.of_job = true;
  settings.actions = TRY(actions_of(options, task));
  if (settings.actions.back().kind != ActionWord::Kind::exit)
    settings.actions.push_back({.kind = ActionWord::Kind::exit, .text = "exit", .argument = "", .status = kIdleStatus});
  settings.how.ending.signal = SIGTERM;
  // A master that does not answer now may do so later.
  settings.retries.most = kTries - 1;
  settings.retries.after = std::clamp<Duration>(options.every(), std::chrono::seconds(1), kBetweenTries);
  return settings;
}

}  // namespace lull
