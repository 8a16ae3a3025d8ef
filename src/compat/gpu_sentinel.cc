#include "compat/gpu_sentinel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/text.h"
#include "compat/argparse.h"

namespace lull {
namespace {

constexpr std::int64_t kLongest = 3600;

const std::array kOptions = {
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

constexpr int kUnreadable = 2;
constexpr int kSenseless = 1;

// That it is one has been seen; how large it may be is the caller's to say.
std::int64_t to_integer(std::string_view text) {
  constexpr double kMost = 1e9;
  return static_cast<std::int64_t>(std::clamp(to_double(trim(text)).value_or(0), -kMost, kMost));
}

Result<> read_duration(const ArgparseResult& given, std::string_view key, std::int64_t& into) {
  if (!given.has(key)) return {};
  const std::int64_t number = to_integer(given.text(key, ""));
  if (number >= kLongest)
    return std::unexpected(Error{fmt::format("{} can at most be {} ticks", key, kLongest), kSenseless});
  into = number;
  return {};
}

void read_threshold(const ArgparseResult& given, std::string_view key, double& into) {
  if (!given.has(key)) return;
  // A usage is from 0 to 1: beyond that all thresholds mean the same.
  into = std::clamp(to_double(trim(given.text(key, ""))).value_or(into), -1000.0, 1000.0);
}

// 0.7 is 70 %, and not 70.00000000000001.
std::string percent(double share) { return fmt::format("{:.10g}", share * 100); }

std::string whole_percent(double share) { return fmt::format("{:.0f}%", share * 100); }

}  // namespace

Result<SentinelOptions> parse_sentinel(std::span<const std::string> words) {
  auto parsed = argparse(kOptions, words, false);
  if (!parsed) {
    parsed.error().errno_value = kUnreadable;
    return std::unexpected(std::move(parsed.error()));
  }
  const ArgparseResult& given = *parsed;
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
    for (const std::string& text : given.values.at("gpu_devices")) options.gpu_devices.push_back(to_integer(text));
  return options;
}

std::optional<std::string> SentinelOptions::arm_rule() const {
  if (arm_duration < 1) return std::nullopt;
  return fmt::format("mean(util) > {} for {} samples", percent(arm_threshold), arm_duration);
}

// Never without having seen it: no duration at all is one sample.
std::string SentinelOptions::kill_rule() const {
  return fmt::format("mean(util) < {} for {} samples", percent(kill_threshold),
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

}  // namespace lull
