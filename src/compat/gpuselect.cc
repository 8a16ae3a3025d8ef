#include "compat/gpuselect.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/text.h"
#include "compat/argparse.h"

namespace lull {

namespace {

constexpr int kUnreadable = 2;
constexpr int kSenseless = 1;

const std::vector<ArgparseOption> kOptions = {
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

std::unexpected<Error> unreadable(std::string what) { return std::unexpected(Error{std::move(what), kUnreadable}); }
std::unexpected<Error> senseless(std::string what) { return std::unexpected(Error{std::move(what), kSenseless}); }

constexpr double kMost = 1000000;

// A negative number is one too, and is complained about later.
std::optional<long> whole(const ArgparseResult& given, std::string_view key) {
  if (!given.has(key)) return std::nullopt;
  const auto number = to_double(trim(given.text(key, "")));  // argparse() saw that it is one
  return static_cast<long>(std::clamp(number.value_or(-1), -kMost, kMost));
}

Result<std::vector<long>> device_list(std::string_view text) {
  std::vector<long> devices;
  for (const std::string_view part : split(text, ',')) {
    long number = 0;
    const std::string_view digits = trim(part);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    if (error != std::errc() || end != digits.data() + digits.size())
      return unreadable("argument -d/--devices: Parameter must be a single int or 'int1,int2,...'");
    if (std::find(devices.begin(), devices.end(), number) == devices.end()) devices.push_back(number);
  }
  return devices;
}

// As Python shows a string in a list.
std::string quoted(const std::string& word) {
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

struct Numbers {
  long count = 1;
  long util = 0;
  std::optional<long> mem_util;
  long processes = 0;
};

Result<> check(const Numbers& numbers, GpuselectOptions& options) {
  if (numbers.count < 1) return senseless("GPU count must be >= 1");
  if (!options.devices.empty() && options.name) return senseless("Use only one of 'devices' and 'name' parameters");
  if (numbers.util < 0 || numbers.mem_util.value_or(0) < 0 || numbers.processes < 0)
    return senseless("Utilization/process count thresholds must be >= 0");
  options.count = static_cast<unsigned>(numbers.count);
  options.util = static_cast<unsigned>(numbers.util);
  if (numbers.mem_util) options.mem_util = static_cast<unsigned>(*numbers.mem_util);
  options.processes = static_cast<unsigned>(numbers.processes);
  for (const long device : options.devices)
    if (device < 0) return senseless(fmt::format("Invalid device ID {}", device));
  // Whoever names more GPUs than the count wants them all.
  options.count = std::max(options.count, static_cast<unsigned>(options.devices.size()));
  return {};
}

}  // namespace

Result<GpuselectOptions> parse_gpuselect(std::span<const std::string> words) {
  const auto given = argparse(kOptions, words, true);
  if (!given) return unreadable(given.error().what);
  GpuselectOptions options;
  options.command = given->command;
  options.quiet = given->has("quiet");
  options.debug = given->has("debug");
  options.help = given->has("help");
  if (options.help) return options;
  if (given->has("devices")) options.devices = TRY(device_list(given->text("devices", "")));
  if (given->has("name")) options.name = std::string(given->text("name", ""));
  Numbers numbers;
  numbers.count = whole(*given, "count").value_or(numbers.count);
  numbers.util = whole(*given, "util").value_or(numbers.util);
  numbers.mem_util = whole(*given, "mem_util");
  numbers.processes = whole(*given, "processes").value_or(numbers.processes);
  TRY(check(numbers, options));
  return options;
}

std::string gpuselect_running(std::span<const std::string> command) {
  std::string text = "Running: [";
  for (std::size_t i = 0; i < command.size(); ++i) text += (i == 0 ? "" : ", ") + quoted(command[i]);
  return text + "]";
}

std::string_view gpuselect_help() {
  return "usage: gpuselect [-h] [-d DEVICES] [-n NAME] [-u UTIL] [-m MEM_UTIL] [-c COUNT] [-p PROCESSES] [-q] [-D]\n"
         "                 [--] [CMD ...]\n\n"
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

}  // namespace lull
