#include "compat/gpu_idle_timeout.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include "act/spawn.h"
#include "base/exit_status.h"
#include "base/fd.h"
#include "base/process.h"
#include "base/text.h"
#include "compat/argparse.h"
#include "view/events.h"

namespace lull {
namespace {

const std::array kGpuIdleTimeoutOptions = {
    ArgparseOption{"help", {"-h", "--help"}, Takes::help},
    ArgparseOption{
        "threshold", {"-t", "--threshhold-percentage"}, Takes::one, Value::fraction, {"--threshhold_percentage"}},
    ArgparseOption{"freq", {"-s", "--sample-freq"}, Takes::one, Value::fraction, {"--sample_freq"}},
    ArgparseOption{"samples", {"-n", "--num-samples"}, Takes::one, Value::integer, {"--num_samples"}},
    ArgparseOption{"delay", {"-d", "--delay-samples"}, Takes::one, Value::integer, {"--delay_samples"}},
    ArgparseOption{"any", {"-a", "--all-or-any", "--all_or_any"}},
    ArgparseOption{"debug", {"-x", "--debug"}, Takes::nothing},
    ArgparseOption{"signal", {"--signal-name"}, Takes::one, Value::text, {"--signal_name"}},
    ArgparseOption{"children", {"--signal-children"}, Takes::nothing, Value::text, {"--signal_children"}},
    ArgparseOption{"gpus", {"--gpus"}},
    ArgparseOption{"do", {"--do"}},
};

const ArgparseOption& option(std::string_view key) {
  return *std::ranges::find_if(kGpuIdleTimeoutOptions, [&](const ArgparseOption& one) { return one.key == key; });
}

// Python knows two of them by another name as well.
Result<int> signal_called(std::string_view name) {
  if (name == "SIGCLD") return SIGCHLD;
  if (name == "SIGPOLL") return SIGPOLL;
  return parse_signal(name);
}

std::unexpected<Error> senseless(std::string what) { return std::unexpected(Error{std::move(what), kExitValue}); }

// That it is one has been seen. `called`: as its help calls the value; one of these must be greater than 0.
Result<> read_number(const ArgparseResult& given, std::string_view key, std::string_view called, double& into) {
  if (!given.has(key)) return {};
  const std::string_view text = given.text(key, "");
  const double number = python_float(text).value_or(0);
  if (!called.empty() && number <= 0) return senseless(fmt::format("{} must be greater than 0.", called));
  if (std::fabs(number) > 1e9)
    return argparse_complaint(option(key), fmt::format("'{}' is too large", printable(text)));
  into = number;
  return {};
}

// 1.2 and not 1.2000000000000002.
std::string number(double value) { return fmt::format("{:.10g}", value); }

std::string python_list(std::span<const std::string> words) {
  std::string text = "[";
  for (const std::string& word : words) text += fmt::format("{}'{}'", text.size() > 1 ? ", " : "", printable(word));
  return text + "]";
}

}  // namespace

Result<IdleTimeoutOptions> parse_idle_timeout(std::span<const std::string> words) {
  const ArgparseResult given = TRY(argparse(kGpuIdleTimeoutOptions, words, true));
  IdleTimeoutOptions options;
  options.command = given.command;
  options.help = given.has("help");
  if (options.help) return options;
  double samples = options.num_samples;
  auto delay = static_cast<double>(options.delay_samples);
  TRY(read_number(given, "threshold", "THRESHHOLD_PERCENTAGE", options.threshold));
  TRY(read_number(given, "freq", "SAMPLE_FREQ", options.sample_freq));
  TRY(read_number(given, "samples", "NUM_SAMPLES", samples));
  TRY(read_number(given, "delay", "", delay));
  options.num_samples = static_cast<std::uint32_t>(samples);
  options.delay_samples = static_cast<std::int64_t>(delay);
  const std::string_view any = given.text("any", "all");
  if (any != "all" && any != "any")
    return senseless(fmt::format("ALL_OR_ANY must be either all or any, not '{}'.", printable(any)));
  options.any = any == "any";
  options.debug = given.has("debug");
  options.signal_children = given.has("children");
  if (given.has("signal")) {
    const auto signal = signal_called(given.text("signal", ""));
    if (!signal) return senseless(fmt::format("unknown SIGNAL '{}'.", printable(given.text("signal", ""))));
    options.signal = *signal;
  }
  options.gpus = given.text("gpus", "");
  if (given.has("do")) options.actions = given.values.at("do");
  return options;
}

std::string IdleTimeoutOptions::rule() const {
  return any ? fmt::format("any(util < {} for {} samples)", threshold, num_samples)
             : fmt::format("util < {} for {} samples", threshold, num_samples);
}

Duration IdleTimeoutOptions::every() const { return Duration(static_cast<Duration::rep>(sample_freq * 1e9)); }

// The first reading is taken one period after the start at the earliest: before that
// there is no time that it could tell about.
Duration IdleTimeoutOptions::delay() const { return every() * std::max<std::int64_t>(delay_samples, 1); }

std::string idle_timeout_log(WallTime at, std::string_view level, std::string_view text) {
  return fmt::format("{}: {}: gpu_idle_timeout: {}\n", python_log_time(at), level, text);
}

std::string idle_timeout_started(const IdleTimeoutOptions& options) {
  return fmt::format(
      "Starting GPU idle watcher: threshhold_percentage={}%, sample_freq={}, num_samples={}, delay_samples={}, "
      "window_size={}",
      options.threshold, options.sample_freq, options.num_samples, options.delay_samples,
      number(options.sample_freq * options.num_samples));
}

std::optional<std::string> idle_timeout_waiting(const IdleTimeoutOptions& options, std::uint64_t tick) {
  const std::int64_t left = options.delay_samples - static_cast<std::int64_t>(tick);
  if (tick == 0 || left <= 0) return std::nullopt;
  return fmt::format("waiting for delay samples. {} seconds left",
                     number(static_cast<double>(left) * options.sample_freq));
}

std::string idle_timeout_usage_of(std::string_view uuid, double util) {
  if (std::isnan(util)) return fmt::format("{} usage [N/A]", uuid);
  // Rounded down: a usage that shows as the threshold is not below it.
  return fmt::format("{} usage {}%", uuid, static_cast<int>(std::floor(util)));
}

std::string idle_timeout_fired(const IdleTimeoutOptions& options, std::span<const std::string> uuids) {
  return fmt::format("usage for {} GPUs: {} was below threshhold {}% for last {} seconds. Killing {}.",
                     options.any ? "any" : "all", python_list(uuids), options.threshold,
                     number(options.sample_freq * options.num_samples), options.command.empty() ? "task" : "process");
}

std::string idle_timeout_signalling(int signal, int pid) {
  return fmt::format("Sending signal {} to process {}", signal, pid);
}

std::string_view idle_timeout_killing() { return "process still alive, maybe hung, killing."; }

std::vector<std::string> idle_timeout_children(int signal, std::span<const IdleTimeoutMember> members) {
  std::vector<IdleTimeoutMember> layers(members.begin(), members.end());
  std::ranges::stable_sort(layers, {}, &IdleTimeoutMember::layer);
  std::vector<std::string> lines = {"signal children: logging process tree"};
  for (const IdleTimeoutMember& one : layers)
    lines.push_back(fmt::format("signal children: layer {}: pid {}: '{}'", one.layer, one.pid, printable(one.command)));
  lines.emplace_back("signal children: signalling started");
  std::ranges::stable_sort(layers, std::ranges::greater(), &IdleTimeoutMember::layer);
  for (const IdleTimeoutMember& one : layers)
    if (one.layer > 0)
      lines.push_back(fmt::format("signal children: send signal {} to pid {} in layer {}", signal, one.pid, one.layer));
  lines.emplace_back("signal children: signaling ended");
  return lines;
}

std::string_view idle_timeout_usage(bool task) {
  return task ? "usage: gpu_idle_timeout [-h] [-t THRESHHOLD_PERCENTAGE] [-s SAMPLE_FREQ] [-n NUM_SAMPLES] "
                "[-d DELAY_SAMPLES] [-a ALL_OR_ANY] [-x] ...\n"
              : "usage: gpu_idle_timeout [-h] [-t THRESHHOLD_PERCENTAGE] [-s SAMPLE_FREQ] [-n NUM_SAMPLES] "
                "[-d DELAY_SAMPLES] [--signal-name SIGNAL_NAME] [--signal-children] [-x] ...\n";
}

std::string idle_timeout_help(bool task) {
  constexpr std::string_view kTask = R"(
Terminates when GPU usage drops below threshhold during sample window. It watches beside the Determined task that it runs in, and ends that; with a command it launches and watches the command instead.

optional arguments:
  -h, --help            show this help message and exit
  -t THRESHHOLD_PERCENTAGE, --threshhold-percentage THRESHHOLD_PERCENTAGE
                        Threshhold in percentage of GPU usage which triggers a task termination. Must be greater than 0. (default: 1)
)";
  constexpr std::string_view kLaunch = R"(
Launches a process and terminates when GPU usage drops below threshhold during sample window. Without a command it watches beside the Determined task that it runs in, and ends that.

positional arguments:
  exec_command_and_args
                        Command and arguments to execute

optional arguments:
  -h, --help            show this help message and exit
  -t THRESHHOLD_PERCENTAGE, --threshhold-percentage THRESHHOLD_PERCENTAGE
                        Threshhold in percentage of GPU usage which triggers a failure. Must be greater than 0. (default: 1)
)";
  constexpr std::string_view kBoth = R"(  -s SAMPLE_FREQ, --sample-freq SAMPLE_FREQ
                        How frequently, in seconds, to sample the GPU usage. Must be greater than 0. (default: 5)
  -n NUM_SAMPLES, --num-samples NUM_SAMPLES
                        Number of samples in window used to evaluate GPU usage. Must be greater than 0. (default: 60)
  -d DELAY_SAMPLES, --delay-samples DELAY_SAMPLES
                        Number of samples to delay before evaluating GPU usage. (default: 12)
  -a ALL_OR_ANY, --all_or_any ALL_OR_ANY
                        Whether to verify that all or any of the GPUs have the specified threshold. Must be either all or any (default: all)
  -x, --debug           Enable debug logging (reports GPU readings each sample period). (default: False)
)";
  constexpr std::string_view kMoreOfTask =
      R"(  --gpus LIST           Which GPUs count (default: CUDA_VISIBLE_DEVICES, else all)
  --do ACTION           What to end where there is no Determined task (see lull watch --help)
)";
  constexpr std::string_view kMoreOfLaunch = R"(  --signal-name SIGNAL_NAME
                        Signal sent to the process 3 seconds before it is killed (default: SIGQUIT)
  --signal-children     Send it to the children of the process first, deepest first (default: False)
  --gpus LIST           Which GPUs count (default: CUDA_VISIBLE_DEVICES, else those the process uses, else all)
  --do ACTION           Without a command: what to end where there is no Determined task (see lull watch --help)
)";
  return fmt::format("{}{}{}", task ? kTask : kLaunch, kBoth, task ? kMoreOfTask : kMoreOfLaunch);
}

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
  settings.first_may_fire = true;  // -n 1 is one sample
  return settings;
}

// Says so, waits for those who read it, kills. In between a new sample has to say yes once more.
Result<std::vector<ActionOption>> task_actions(const DeterminedTask& task) {
  const std::string kill = shell_line(TRY(determined_kill(task)));
  if (!is_executable("det")) return fail("`det` is not in PATH: a Determined task cannot be ended");
  const auto run = [](std::string_view line) {
    return ActionOption{.kind = ActionOption::Kind::exec, .text = std::string(line), .argument = std::string(line)};
  };
  return std::vector<ActionOption>{run(kBeforeTheKill), run(kill)};
}

Result<std::vector<ActionOption>> actions_of(const IdleTimeoutOptions& options,
                                             const std::optional<DeterminedTask>& task) {
  if (options.actions.empty()) return task_actions(*task);
  std::vector<ActionOption> actions;
  for (const std::string& text : options.actions) actions.push_back(TRY(parse_action(text)));
  return actions;
}

}  // namespace

void IdleTimeoutConsole::log(std::string_view level, std::string_view text) const {
  (void)write_all(STDERR_FILENO, idle_timeout_log(clock_.wall(), level, text));
}

void IdleTimeoutConsole::ticked(std::uint64_t tick) {
  if (const auto line = idle_timeout_waiting(options_, tick)) log("INFO", *line);
}

void IdleTimeoutConsole::sampled(const Sampled& sampled, std::optional<Instant>) {
  // Its original ends the job with the sample that fires: no other one is logged before.
  if (!options_.debug || sampled.confirming || sampled.judged.delayed(sampled.snapshot.at)) return;
  for (const Device& device : sampled.judged.scope())
    if (const Reading* reading = sampled.snapshot.find(device.id()))
      log("DEBUG", idle_timeout_usage_of(device.uuid, (*reading)[Metric::util]));
}

void IdleTimeoutConsole::happened(const Event& event) {
  const bool trouble = is_trouble(event) || std::holds_alternative<NotJudged>(event.what);
  if (trouble || options_.debug) log(trouble ? "WARNING" : "INFO", to_string(event));
}

void IdleTimeoutConsole::firing(const FiringFacts& facts, bool) {
  std::vector<std::string> uuids;
  for (const Device& device : facts.scope) uuids.push_back(device.uuid);
  log("ERROR", idle_timeout_fired(options_, uuids));
  if (launches()) say_signals(facts);
}

void IdleTimeoutConsole::say_signals(const FiringFacts& facts) const {
  if (options_.signal == 0) return log("ERROR", idle_timeout_killing());
  if (options_.signal_children) {
    std::vector<IdleTimeoutMember> members;
    for (const MemberView& one : facts.members)
      members.push_back({one.entry.pid, one.depth, one.unread ? one.entry.name : one.command});
    for (const std::string& line : idle_timeout_children(options_.signal, members)) log("INFO", line);
  }
  log("INFO", idle_timeout_signalling(options_.signal, facts.job.value_or(0)));
}

void IdleTimeoutConsole::did(const ActionEvent& action_event) {
  if (launches() && std::holds_alternative<Killing>(action_event)) return log("ERROR", idle_timeout_killing());
  note(level_of(action_event), event_name(action_event), to_string(action_event));
}

void IdleTimeoutConsole::note(Level level, std::string_view event, const std::string& text) {
  // What was announced and is not done is said too.
  if (level >= Level::warning || event == "called-off") log(level == Level::important ? "ERROR" : "WARNING", text);
}

RunSettings idle_timeout_run(const IdleTimeoutOptions& options, const Policy& policy) {
  RunSettings settings;
  settings.command = options.command;
  settings.common = common_settings(options, policy);
  settings.common.require_gpu = true;          // its document: it needs nvidia-smi
  settings.common.all_without_context = true;  // and a job that hangs before it uses a GPU is to be ended, too
  settings.refused_status = kIdleTimeoutRefused;
  settings.idle_status = kIdleStatus;
  settings.ending.signal = options.signal;
  settings.ending.grace = kGrace;
  settings.ending.check_before_kill = false;  // as the original
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
  if (settings.actions.back().kind != ActionOption::Kind::exit)
    settings.actions.push_back(
        {.kind = ActionOption::Kind::exit, .text = "exit", .argument = "", .status = kIdleStatus});
  settings.how.ending.signal = SIGTERM;
  // A master that does not answer now may do so later.
  settings.retries.most = kTries - 1;
  settings.retries.after = std::clamp<Duration>(options.every(), std::chrono::seconds(1), kBetweenTries);
  return settings;
}

}  // namespace lull
