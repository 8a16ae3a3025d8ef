#include "compat/gpu_sentinel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "compat/argparse.h"

namespace lull {
namespace {

constexpr std::uint32_t kLongest = 3600;

const std::array kOptions = {
    ArgparseOption{"help", {"-h", "--help"}, Takes::nothing},
    ArgparseOption{"arm_duration", {"--arm_duration", "--arm-duration"}},
    ArgparseOption{"arm_threshold", {"--arm_threshold", "--arm-threshold"}},
    ArgparseOption{"kill_duration", {"--kill_duration", "--kill-duration"}},
    ArgparseOption{"kill_threshold", {"--kill_threshold", "--kill-threshold"}},
    ArgparseOption{"kill_action", {"--kill_action", "--kill-action"}},
    ArgparseOption{"gpu_devices", {"--gpu_devices", "--gpu-devices"}, Takes::many},
    ArgparseOption{"missing", {"--missing"}},
};

const ArgparseOption& option(std::string_view key) {
  return *std::ranges::find_if(kOptions, [&](const ArgparseOption& one) { return one.key == key; });
}

Result<> read_duration(const ArgparseResult& given, std::string_view key, std::uint32_t& into) {
  if (!given.has(key)) return {};
  const std::string_view text = given.text(key, "");
  const auto number = to_unsigned(text);
  if (!number) return argparse_complaint(option(key), fmt::format("invalid int value: '{}'", printable(text)));
  if (*number == 0 || *number >= kLongest)
    return argparse_complaint(option(key), fmt::format("must be from 1 to {} seconds, not {}", kLongest - 1, *number));
  into = static_cast<std::uint32_t>(*number);
  return {};
}

Result<> read_threshold(const ArgparseResult& given, std::string_view key, double& into) {
  if (!given.has(key)) return {};
  const std::string_view text = given.text(key, "");
  const auto number = to_double(text);
  if (!number) return argparse_complaint(option(key), fmt::format("invalid float value: '{}'", printable(text)));
  if (!(*number >= 0 && *number <= 1))
    return argparse_complaint(option(key), fmt::format("must be from 0 to 1, not {}", printable(text)));
  into = *number;
  return {};
}

// 0.7 is 70 %, and not 70.00000000000001.
std::string percent(double share) { return fmt::format("{:.10g}", share * 100); }

std::string which(const SentinelOptions& options) {
  return options.gpu_devices.empty() ? "all GPUs" : "GPUs " + options.gpus();
}

}  // namespace

Result<SentinelOptions> parse_sentinel(std::span<const std::string> words) {
  const ArgparseResult given = TRY(argparse(kOptions, words, false));
  SentinelOptions options;
  options.help = given.has("help");
  TRY(read_duration(given, "arm_duration", options.arm_duration));
  TRY(read_threshold(given, "arm_threshold", options.arm_threshold));
  TRY(read_duration(given, "kill_duration", options.kill_duration));
  TRY(read_threshold(given, "kill_threshold", options.kill_threshold));
  options.kill_action = given.text("kill_action", options.kill_action);
  if (options.kill_action != "end_process" && options.kill_action != "shutdown" && options.kill_action != "reboot")
    return argparse_complaint(option("kill_action"),
                              fmt::format("invalid choice: '{}' (choose from 'end_process', 'shutdown', 'reboot')",
                                          printable(options.kill_action)));
  if (given.has("gpu_devices")) {
    for (const std::string& text : given.values.at("gpu_devices")) {
      const auto number = to_unsigned(text);
      if (!number || *number > 0xffff)
        return argparse_complaint(option("gpu_devices"), fmt::format("invalid int value: '{}'", printable(text)));
      options.gpu_devices.push_back(static_cast<unsigned>(*number));
    }
  }
  const std::string_view missing = given.text("missing", "wait");
  if (missing != "wait" && missing != "ignore")
    return argparse_complaint(option("missing"), "invalid choice: (choose from 'wait', 'ignore')");
  options.ignore_missing = missing == "ignore";
  return options;
}

std::string SentinelOptions::arm_rule() const {
  return fmt::format("mean(util) > {} for {} samples", percent(arm_threshold), arm_duration);
}

std::string SentinelOptions::kill_rule() const {
  return fmt::format("mean(util) < {} for {} samples", percent(kill_threshold), kill_duration);
}

std::string SentinelOptions::gpus() const { return fmt::format("{}", fmt::join(gpu_devices, ",")); }

std::string sentinel_idle(const SentinelOptions& options) {
  return fmt::format("IDLE: waiting for the usage of {} to be above {}% for {} seconds", which(options),
                     percent(options.arm_threshold), options.arm_duration);
}

std::string sentinel_armed(const SentinelOptions& options) {
  return fmt::format("ARMED: waiting for the usage of {} to be below {}% for {} seconds", which(options),
                     percent(options.kill_threshold), options.kill_duration);
}

std::string sentinel_triggered(const SentinelOptions& options) {
  return fmt::format("Triggered: the usage of {} was below {}% for {} seconds: {}", which(options),
                     percent(options.kill_threshold), options.kill_duration, options.kill_action);
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
  --missing {wait,ignore}
                        A GPU that gives no usage: wait for it, or average the others (default: wait)
)";
}

}  // namespace lull
