#include "compat/gpuselect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/exit_status.h"
#include "base/text.h"
#include "compat/argparse.h"
#include "gpu/snapshot.h"

namespace lull {
namespace {

const std::vector<ArgparseOption> kGpuselectOptions = {
    {"devices", {"-d", "--devices"}},
    {"name", {"-n", "--name"}},
    {"util", {"-u", "--util"}, Takes::one, Value::integer},
    {"mem_util", {"-m", "--mem_util"}, Takes::one, Value::integer},
    {"count", {"-c", "--count"}, Takes::one, Value::integer},
    {"processes", {"-p", "--processes"}, Takes::one, Value::integer},
    {"quiet", {"-q", "--quiet"}, Takes::nothing},
    {"debug", {"-D", "--debug"}, Takes::nothing},
    {"help", {"-h", "--help"}, Takes::nothing},
};

std::unexpected<Error> unreadable(std::string what) { return std::unexpected(Error{std::move(what), kExitUsage}); }
std::unexpected<Error> gpuselect_error(std::string what) { return std::unexpected(Error{std::move(what), kExitValue}); }

constexpr std::int64_t kMost = 1000000;

// A negative number is one too, and is complained about later.
std::optional<long> whole(const ArgparseResult& given, std::string_view key) {
  if (!given.has(key)) return std::nullopt;
  const auto number = python_int(given.text(key, ""));  // argparse() saw that it is one
  return std::clamp(number.value_or(-1), -kMost, kMost);
}

Result<std::vector<long>> device_list(std::string_view text) {
  std::vector<long> devices;
  for (const std::string_view part : split(text, ',')) {
    const auto number = python_int(part);
    if (!number) return unreadable("argument -d/--devices: Parameter must be a single int or 'int1,int2,...'");
    if (std::ranges::find(devices, *number) == devices.end()) devices.push_back(*number);
  }
  return devices;
}

struct Numbers {
  long count = 1;
  long util = 0;
  std::optional<long> mem_util;
  long processes = 0;
};

Result<> check(const Numbers& numbers, GpuselectOptions& options) {
  if (numbers.count < 1) return gpuselect_error("GPU count must be >= 1");
  if (!options.devices.empty() && options.name)
    return gpuselect_error("Use only one of 'devices' and 'name' parameters");
  if (numbers.util < 0 || numbers.mem_util.value_or(0) < 0 || numbers.processes < 0)
    return gpuselect_error("Utilization/process count thresholds must be >= 0");
  options.count = options.asked = static_cast<unsigned>(numbers.count);
  options.util = static_cast<unsigned>(numbers.util);
  if (numbers.mem_util) options.mem_util = static_cast<unsigned>(*numbers.mem_util);
  options.processes = static_cast<unsigned>(numbers.processes);
  for (const long device : options.devices)
    if (device < 0) return gpuselect_error(fmt::format("Invalid device ID {}", device));
  // Whoever names more GPUs than the count wants them all.
  options.count = std::max(options.count, static_cast<unsigned>(options.devices.size()));
  return {};
}

}  // namespace

Result<GpuselectOptions> parse_gpuselect(std::span<const std::string> words) {
  const ArgparseResult given = TRY(argparse(kGpuselectOptions, words, true));
  GpuselectOptions options;
  options.command = given.command;
  options.quiet = given.has("quiet");
  options.debug = given.has("debug");
  options.help = given.has("help");
  if (options.help) return options;
  if (given.has("devices")) options.devices = TRY(device_list(given.text("devices", "")));
  if (given.has("name")) options.name = std::string(given.text("name", ""));
  Numbers numbers;
  numbers.count = whole(given, "count").value_or(numbers.count);
  numbers.util = whole(given, "util").value_or(numbers.util);
  numbers.mem_util = whole(given, "mem_util");
  numbers.processes = whole(given, "processes").value_or(numbers.processes);
  TRY(check(numbers, options));
  return options;
}

std::string python_repr(const std::string& word) {
  const char quote = word.find('\'') != std::string::npos && word.find('"') == std::string::npos ? '"' : '\'';
  std::string text(1, quote);
  for (const char c : word) {
    switch (c) {
      case '\\': text += "\\\\"; break;
      case '\n': text += "\\n"; break;
      case '\r': text += "\\r"; break;
      case '\t': text += "\\t"; break;
      default:
        if (c == quote) text += '\\';
        text += c;
    }
  }
  return printable(text + quote);
}

std::string gpuselect_running(std::span<const std::string> command) {
  std::string text = "Running: [";
  for (std::size_t i = 0; i < command.size(); ++i) text += (i == 0 ? "" : ", ") + python_repr(command[i]);
  return text + "]";
}

std::string gpuselect_asked(const GpuselectOptions& options) {
  std::string devices = "None";
  if (options.devices.size() == 1) devices = fmt::format("{}", options.devices.front());
  if (options.devices.size() > 1) devices = fmt::format("[{}]", fmt::join(options.devices, ", "));
  return fmt::format("count={},devices={},name={},util={},mem_util={},processes={},silent=False", options.asked,
                     devices, printable(options.name.value_or("None")), options.util, options.mem_util.value_or(0),
                     options.processes);
}

std::string gpuselect_warning(const GpuselectOptions& options) {
  const std::size_t named = options.devices.size();
  if (named <= options.asked) return "";
  return fmt::format("count={} but {} device IDs were specified, setting count={}", options.asked, named, named);
}

std::string_view gpuselect_usage() {
  return "usage: gpuselect [-h] [-d DEVICES] [-n NAME] [-u UTIL] [-m MEM_UTIL] [-c COUNT]\n"
         "                 [-p PROCESSES] [-q] [-D]\n";
}

std::string_view gpuselect_help() {
  return "                 [--] [CMD ...]\n\n"
         "Chooses idle GPUs, prints them as CUDA_VISIBLE_DEVICES wants them, or runs CMD on them.\n"
         "This is lull under the name of gpuselect; `lull pick --help` can do more.\n\n"
         "  -h, --help            show this\n"
         "  -d, --devices 0,1     only these devices, and all of them\n"
         "  -n, --name NAME       only devices with this in their names\n"
         "  -u, --util N          utilisation at most, in % (0)\n"
         "  -m, --mem_util N      memory utilisation at most, in % (0); where given, also of memory in use\n"
         "  -c, --count N         how many (1)\n"
         "  -p, --processes N     processes at most (0); from 1 on the GPU is shared with so many others\n"
         "  -q, --quiet           do not print the value of CUDA_VISIBLE_DEVICES\n"
         "  -D, --debug           say on stderr how it was chosen\n\n"
         "example: gpuselect --count 2 --name 3090 -- python train.py\n";
}

namespace {

constexpr double kRounding = 1e-3;  // %: the mean of values that are all 50 may be a hair above that

// Who says how full the memory may be gets that: -m 100 is any. What an empty card shows is never too much.
WhereAnswer memory_fits(const Reading& reading, unsigned most) {
  const double used = reading[Metric::mem_used];
  const double total = reading[Metric::mem_total];
  if (most >= 100) return {true, ""};
  if (std::isnan(used) || std::isnan(total)) {
    if (reading.why_missing(Metric::mem_used) == Absence::not_supported) return {true, ""};
    return {std::nullopt,
            fmt::format("mem_used cannot be read ({})", to_string(reading.why_missing(Metric::mem_used)))};
  }
  const double empty = reading.display_active == true ? kEmptyDesktop : kEmptyCard;
  if (used <= std::max(empty, total * most / 100)) return {true, ""};
  return {false, fmt::format("{:.3g} % of its memory in use; wanted at most {} %", used / total * 100, most)};
}

// A whole number, or what Python prints of one that could not be read.
std::string whole(double value, double scale = 1) {
  return std::isnan(value) ? "None" : fmt::format("{}", std::llround(value * scale));
}

// Of a share upwards, so that a little work is never 0 %.
double percent(const Reading& reading, Metric metric) { return std::ceil(reading[metric] - kRounding); }

std::string info_text(const Device& device, const Reading& reading) {
  const auto value = [&](Metric metric, double scale = 1) { return whole(reading[metric], scale); };
  const double total = reading[Metric::mem_total];
  const double free = reading[Metric::mem_free];
  return fmt::format(
      "GpuInfo(device={}, name={}, util={}, mem_util={}, mem_free={}, mem_used={}, mem_total={}, processes={}, "
      "fan_speed={}, effective_power_limt={}, performance_state={}, power_usage={}, temperature={}, is_throttling={})",
      device.index, python_repr(device.name), whole(percent(reading, Metric::util)),
      whole(percent(reading, Metric::mem_util)), whole(free), whole(total - free), whole(total), value(Metric::procs),
      value(Metric::fan), value(Metric::power_limit, 1000), value(Metric::pstate), value(Metric::power, 1000),
      value(Metric::temp), reading.throttle_reasons ? (is_throttling(*reading.throttle_reasons) ? "1" : "0") : "None");
}

}  // namespace

PickSettings gpuselect_settings(const GpuselectOptions& options) {
  PickSettings settings;
  settings.count = options.count;
  for (const long device : options.devices)
    settings.gpus += fmt::format("{}{}", settings.gpus.empty() ? "" : ",", device);
  settings.vendor = Vendor::nvidia;  // the predecessor knows no other
  settings.keep_to_visible = false;  // the predecessor looks at every GPU
  settings.constraints.name = options.name.value_or("");
  settings.constraints.exact_name = true;
  // 0 is the usual limit and not one that was asked for: MIG devices are judged without it.
  if (options.util > 0) settings.constraints.util = Limit::of(options.util + kRounding);
  if (options.mem_util) {
    if (*options.mem_util > 0) settings.constraints.mem_util = Limit::of(*options.mem_util + kRounding);
    settings.constraints.mem_used = Limit::off();
    if (options.processes == 0)
      settings.constraints.where = [most = *options.mem_util](const Reading& reading) {
        return memory_fits(reading, most);
      };
  }
  if (options.processes > 0) {
    settings.constraints.procs = Limit::of(options.processes);
    settings.constraints.mem_used = Limit::off();  // they are welcome with what they hold
  }
  // Beside so many others, as the predecessor counts. Who came first has nothing to say about it there: whoever asks
  // for a GPU with at most N on it may come. `lull pick` never shares what it was not asked to share.
  settings.share = std::min(options.processes, kMostHolders - 1) + 1;
  settings.patience = kMostHolders;
  settings.command = options.command;
  settings.where_details = options.debug;  // it tells of all that there is
  return settings;
}

std::vector<std::string> gpuselect_debug(const Picker& picker, const GpuselectOptions& options) {
  std::vector<std::string> lines;
  const Snapshot& snapshot = picker.snapshot();
  if (!snapshot.inventory || snapshot.driver.absence != Absence::none) return lines;
  const auto& devices = snapshot.inventory->devices;
  std::vector<std::size_t> left;  // positions
  for (std::size_t i = 0; i < devices.size(); ++i)
    if (devices[i].kind == DeviceKind::gpu) left.push_back(i);
  const std::size_t count = left.size();
  lines.push_back(fmt::format("GPU count: {}", count));
  for (const long device : options.devices) {
    if (std::ranges::any_of(left, [&](std::size_t i) { return devices[i].index == device; })) continue;
    lines.push_back(fmt::format("Device ID {} is outside the expected range of 0 - {}", device,
                                static_cast<std::int64_t>(count) - 1));
    return lines;
  }
  for (const std::size_t i : left)
    lines.push_back(fmt::format("Device {}: {}", devices[i].index, info_text(devices[i], snapshot.readings[i])));
  if (!options.devices.empty()) {
    std::erase_if(left, [&](std::size_t i) { return std::ranges::count(options.devices, devices[i].index) == 0; });
    lines.push_back(fmt::format("Device filter, {} devices left", left.size()));
  } else if (options.name) {
    std::erase_if(left, [&](std::size_t i) { return devices[i].name.find(*options.name) == std::string::npos; });
    for (const std::size_t i : left)
      lines.push_back(
          fmt::format("Name match of {} on {}", printable(*options.name), info_text(devices[i], snapshot.readings[i])));
    lines.push_back(fmt::format("Name filter, {} devices left", left.size()));
  }
  const auto filter = [&](std::string_view title, auto value, unsigned most) {
    const std::size_t before = left.size();
    std::erase_if(left, [&](std::size_t i) { return !(value(snapshot.readings[i]) <= most); });
    lines.push_back(fmt::format("{} filter matched {} / {} GPUs", title, left.size(), before));
  };
  filter("Utilization", [](const Reading& one) { return percent(one, Metric::util); }, options.util);
  filter(
      "Memory utilization", [](const Reading& one) { return percent(one, Metric::mem_util); },
      options.mem_util.value_or(0));
  filter("Processes", [](const Reading& one) { return one[Metric::procs]; }, options.processes);
  for (const Picker::Choice& choice : picker.choices()) {
    const auto position = picker.position_of(choice);
    if (choice.judgement.fits || !position || std::erase(left, *position) == 0) continue;
    lines.push_back(fmt::format("Device {}: {}", choice.label, choice.judgement.why));
  }
  lines.push_back(fmt::format("GPUs left after filtering ({} requested): {}", options.count, left.size()));
  return lines;
}

std::string gpuselect_refusal(const Refusal& refusal, const GpuselectOptions& options) {
  if (refusal.wanted == 0) {
    // A device that is not there, as the predecessor words it.
    for (const long device : options.devices)
      if (refusal.kind == Refusal::usage && refusal.what.starts_with(fmt::format("no GPU {}:", device)))
        return fmt::format("Invalid device ID {} ({})\n", device, refusal.what);
    return refusal.what + "\n";
  }
  std::string text = fmt::format("Requested {} GPUs, but {} matched filters\n", refusal.wanted, refusal.fitting);
  for (const std::string& reason : refusal.reasons) text += reason + '\n';
  return text;
}

}  // namespace lull
