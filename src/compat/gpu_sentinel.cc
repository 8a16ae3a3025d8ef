#include "compat/gpu_sentinel.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "base/exit_status.h"
#include "base/fd.h"
#include "base/text.h"
#include "compat/argparse.h"
#include "sense/sampler.h"
#include "view/events.h"

namespace lull {
namespace {

constexpr std::int64_t kGpuSentinelLongest = 3600;

const std::array kGpuSentinelOptions = {
    ArgparseOption{"help", {"-h", "--help"}, Takes::help},
    ArgparseOption{"arm_duration", {"--arm_duration"}, Takes::one, Value::integer, {"--arm-duration"}},
    ArgparseOption{"arm_threshold", {"--arm_threshold"}, Takes::one, Value::real, {"--arm-threshold"}},
    ArgparseOption{"kill_duration", {"--kill_duration"}, Takes::one, Value::integer, {"--kill-duration"}},
    ArgparseOption{"kill_threshold", {"--kill_threshold"}, Takes::one, Value::real, {"--kill-threshold"}},
    ArgparseOption{"kill_action",
                   {"--kill_action"},
                   Takes::one,
                   Value::text,
                   {"--kill-action"},
                   {"end_process", "shutdown", "reboot"}},
    ArgparseOption{"gpu_devices", {"--gpu_devices"}, Takes::many, Value::integer, {"--gpu-devices"}},
    ArgparseOption{"missing", {"--missing"}, Takes::one, Value::text, {}, {"unknown", "ignore"}},
};

Result<> read_duration(const ArgparseResult& given, std::string_view key, std::int64_t& into) {
  if (!given.has(key)) return {};
  const std::int64_t number = python_int(given.text(key, "")).value_or(0);
  if (number >= kGpuSentinelLongest)
    return std::unexpected(Error{fmt::format("{} can at most be {} ticks", key, kGpuSentinelLongest), kExitValue});
  into = number;
  return {};
}

void read_threshold(const ArgparseResult& given, std::string_view key, double& into) {
  if (given.has(key)) into = python_float(given.text(key, "")).value_or(into);
}

// 0.7 is 70 %, and not 70.00000000000001. A usage is from 0 to 1: beyond that all thresholds mean the same. `never`:
// one that no usage passes, as none is above or below nan.
std::string percent(double share, double never) {
  constexpr double kMost = 1000;
  return fmt::format("{:.10g}", (std::isnan(share) ? never : std::clamp(share, -kMost, kMost)) * 100);
}

std::string whole_percent(double share) { return fmt::format("{:.0f}%", share * 100); }

}  // namespace

Result<SentinelOptions> parse_sentinel(std::span<const std::string> words) {
  const ArgparseResult given = TRY(argparse(kGpuSentinelOptions, words, false));
  SentinelOptions options;
  options.help = given.has("help");
  if (options.help) return options;
  options.kill_action = given.text("kill_action", options.kill_action);
  options.ignore_missing = given.text("missing", "unknown") == "ignore";
  TRY(read_duration(given, "arm_duration", options.arm_duration));
  TRY(read_duration(given, "kill_duration", options.kill_duration));
  read_threshold(given, "arm_threshold", options.arm_threshold);
  read_threshold(given, "kill_threshold", options.kill_threshold);
  if (given.has("gpu_devices"))
    for (const std::string& text : given.values.at("gpu_devices")) options.gpu_devices.push_back(*python_int(text));
  return options;
}

std::optional<std::string> SentinelOptions::arm_rule() const {
  if (arm_duration < 1) return std::nullopt;
  return fmt::format("mean(util) > {} for {} samples", percent(arm_threshold, 2), arm_duration);
}

// Never without having seen it: no duration at all is one sample.
std::string SentinelOptions::kill_rule() const {
  return fmt::format("mean(util) < {} for {} samples", percent(kill_threshold, -1),
                     std::max<std::int64_t>(kill_duration, 1));
}

std::vector<std::string> sentinel_start(const SentinelOptions& options, bool root) {
  std::vector<std::string> lines;
  if (options.kill_action != "end_process" && !root)
    lines = {"WARNING: only root may " + options.kill_action + " this computer, and this is not root.",
             "Where sudo lets you do it without a password, sudo will be asked to do it. Where it",
             "wants one, nobody is there to type it, and the computer stays up.",
             "",
             "Allow the command that you want to be run without a password in /etc/sudoers",
             "(NOPASSWD, see sudoers(5)), or run this as root.",
             ""};
  lines.push_back(fmt::format("Starting GPU Sentinel, will arm once average GPU usage is at least {} for {} seconds",
                              whole_percent(options.arm_threshold), options.arm_duration));
  if (options.gpu_devices.empty()) {
    lines.emplace_back("Monitoring all GPUs on the system");
  } else {
    lines.push_back(fmt::format("Monitoring GPUs ['{}'] only.", fmt::join(options.gpu_devices, "', '")));
    lines.emplace_back("These GPUs are user specified and may not exist on the system.");
  }
  lines.emplace_back("Monitoring for low GPU usage! Press ctrl+C to exit");
  return lines;
}

std::string sentinel_armed(const SentinelOptions& options) {
  return fmt::format("GPU Sentinel is armed, will '{}' when values drop below {} for {} seconds", options.kill_action,
                     whole_percent(options.kill_threshold), options.kill_duration);
}

std::string sentinel_triggered(const SentinelOptions& options) {
  return fmt::format("average GPU usage was below {} for {} seconds: {}", whole_percent(options.kill_threshold),
                     options.kill_duration, options.kill_action);
}

std::string_view sentinel_usage() {
  return "usage: gpu_sentinel [-h] [--arm_duration ARM_DURATION] [--arm_threshold ARM_THRESHOLD] "
         "[--kill_duration KILL_DURATION] [--kill_threshold KILL_THRESHOLD] "
         "[--kill_action {end_process,shutdown,reboot}] [--gpu_devices [GPU_DEVICES ...]]\n";
}

std::string_view sentinel_help() {
  return R"(
Watches the GPUs: armed once they have been busy, it acts when they fall idle.

optional arguments:
  -h, --help            show this help message and exit
  --arm_duration ARM_DURATION
                        How many seconds of activity to wait before arming the sentinel. (default: 30)
  --arm_threshold ARM_THRESHOLD
                        What level of utilization is considered activity (default: 0.8)
  --kill_duration KILL_DURATION
                        How many seconds of inactivity to wait before running the kill function. (default: 30)
  --kill_threshold KILL_THRESHOLD
                        What level of utilization is considered inactivity (default: 0.7)
  --kill_action {end_process,shutdown,reboot}
                        What to do when the kill trigger is hit (default: end_process)
  --gpu_devices [GPU_DEVICES ...]
                        Which GPU devices to average (empty for all)
  --missing {unknown,ignore}
                        A GPU that gives no usage: nothing is judged, or the others are averaged (default: unknown)
)";
}

namespace {

constexpr Duration kTryAgain = std::chrono::seconds(10);  // where the machine does not go down
constexpr Duration kSayAgain = std::chrono::minutes(10);

void tell(const std::string& text) { (void)write_all(STDERR_FILENO, "gpu_sentinel: " + text + "\n"); }
// One write a line: whoever reads our stdout gets it at once.
void print(const std::string& text) { (void)write_all(STDOUT_FILENO, text + "\n"); }

std::string list(const std::vector<std::int64_t>& devices) { return fmt::format("{}", fmt::join(devices, ",")); }

}  // namespace

SentinelConsole::SentinelConsole(const SentinelOptions& options, std::string absent, const Clock& clock, bool armed)
    : options_(options), absent_(std::move(absent)), clock_(clock), armed_(armed) {}

void SentinelConsole::started() {
  if (!absent_.empty()) tell(absent_);
  for (const std::string& line : sentinel_start(options_, ::geteuid() == 0)) print(line);
  if (armed_) print(sentinel_armed(options_));
}

void SentinelConsole::happened(const Event& event) {
  if (std::holds_alternative<Armed>(event.what)) return print(sentinel_armed(options_));
  if (!std::holds_alternative<ScopeChanged>(event.what)) tell(to_string(event));
}

void SentinelConsole::firing(const FiringFacts&, bool) { tell(sentinel_triggered(options_)); }

void SentinelConsole::did(const ActionEvent& action_event) {
  note(level_of(action_event), event_name(action_event), to_string(action_event));
}

void SentinelConsole::note(Level level, std::string_view event, const std::string& text) {
  if (event == "called-off") {
    failure_said_.reset();
    return tell(text);
  }
  if (level < Level::warning) return;
  constexpr std::string_view kGpus = "--gpus: ";
  if (event == "scope" && text.starts_with(kGpus)) return tell("--gpu_devices: " + text.substr(kGpus.size()));
  if (event != "failed") return tell(text);
  // It goes on for ever: the first is said, then one now and then.
  if (failure_said_ && clock_.now() - *failure_said_ < kSayAgain) return;
  failure_said_ = clock_.now();
  tell(text);
}

Result<SentinelDevices> sentinel_devices(const SentinelOptions& options) {
  if (options.gpu_devices.empty()) return SentinelDevices{};
  std::vector<std::int64_t> there;
  std::vector<std::int64_t> missing;
  SamplerOptions sampling;
  sampling.want_only({});
  sampling.once = true;
  const Snapshot snapshot = Sampler::start(sampling)->sample();
  // Without a driver it is unknown: they are looked for once it is there.
  const bool known = snapshot.driver.absence == Absence::none && !snapshot.inventory->devices.empty();
  for (const std::int64_t device : options.gpu_devices) {
    const bool found = std::ranges::any_of(snapshot.inventory->devices, [&](const Device& one) {
      return one.kind == DeviceKind::gpu && one.index == device;
    });
    std::vector<std::int64_t>& which = found || (!known && device >= 0) ? there : missing;
    if (std::ranges::count(which, device) == 0) which.push_back(device);
  }
  if (there.empty()) return fail(fmt::format("there is none of the GPUs {} on this system", list(missing)));
  if (missing.empty()) return SentinelDevices{list(there), ""};
  return SentinelDevices{list(there),
                         fmt::format("GPU {} is not on this system: judging on GPU {}", list(missing), list(there))};
}

WatchSettings sentinel_settings(const SentinelOptions& options, Policy policy, const SentinelDevices& devices) {
  WatchSettings settings;
  settings.common.policy = std::move(policy);
  settings.common.gpus = devices.there;
  settings.common.absent_left_out = true;  // where there was no driver yet to tell
  settings.common.every = std::chrono::seconds(1);
  // The tick that arms it does not count, also where nothing has to be seen for that.
  if (options.arm_duration < 1) {
    settings.common.delay = settings.common.every;
    settings.common.first_may_fire = true;
  }
  settings.common.missing = options.ignore_missing ? WhenMissing::ignore : WhenMissing::unknown;
  const std::string action = options.kill_action == "end_process" ? "exit" : options.kill_action;
  settings.actions.push_back(*parse_action(action));
  settings.retries.most = std::numeric_limits<unsigned>::max();
  settings.retries.after = kTryAgain;
  return settings;
}

}  // namespace lull
