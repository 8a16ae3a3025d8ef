#include "signals/reading.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "base/fd.h"
#include "base/http_get.h"
#include "base/text.h"
#include "signals/exposition.h"

namespace lull {
namespace {

constexpr std::string_view kStartMetric = "process_start_time_seconds";  // what client libraries of Prometheus call it

Result<SignalReading> read_file_source(const SignalSource& source) {
  // What stands there may be a FIFO or a device: it is looked at before it is opened for reading.
  const auto handle = open_file(source.file, O_PATH);
  if (!handle) return fail(handle.error().errno_value, printable(source.file));
  struct stat status{};
  if (::fstat(handle->get(), &status) != 0) return fail(errno, printable(source.file));
  if (!S_ISREG(status.st_mode)) return fail(printable(source.file) + " is not a regular file");
  auto text = read_file(AT_FDCWD, fmt::format("/proc/self/fd/{}", handle->get()), kLongestNumber);
  if (!text) return fail(text.error().errno_value, printable(source.file));
  auto reading = read_number(
      *text, static_cast<double>(status.st_mtim.tv_sec) + static_cast<double>(status.st_mtim.tv_nsec) / 1e9);
  // What stands in it is not repeated: it may be somebody's secret, by a link.
  if (!reading) return fail(printable(source.file) + " " + reading.error().message());
  return reading;
}

}  // namespace

Result<SignalReading> read_number(std::string_view text, std::optional<double> time) {
  const std::string_view said = trim(text);
  if (said.empty()) return fail("is empty");
  const auto value = to_double(said);
  if (!value || !std::isfinite(*value)) return fail("is not one number");
  return SignalReading{{{"", *value, time}}, {}};
}

Result<SignalReading> read_endpoint(const SignalSource& source, std::string_view body, bool open_metrics) {
  const auto found = TRY(read_exposition(body, {source.series, kStartMetric}, open_metrics));
  SignalReading reading;
  std::size_t of_this_name = 0;
  for (const ExposedSeries& one : found) {
    if (one.name == kStartMetric && one.name != source.series) {
      reading.started = std::isfinite(one.value) ? std::optional(one.value) : std::nullopt;
      continue;
    }
    ++of_this_name;
    const bool chosen = std::ranges::all_of(
        source.labels, [&](const auto& label) { return std::ranges::find(one.labels, label) != one.labels.end(); });
    if (!chosen) continue;
    if (!std::isfinite(one.value)) return fail(fmt::format("{} is {} now", source.series, one.value));
    std::string labels;
    for (const auto& [name, value] : one.labels) labels += printable(name) + "=" + printable(value) + ",";
    reading.series.push_back({std::move(labels), one.value, one.time});
  }
  if (reading.series.empty())
    return fail(of_this_name == 0 ? fmt::format("it has no {} now", source.series)
                                  : fmt::format("none of its {} has these labels", source.series));
  return reading;
}

Result<SignalReading> read_source(const SignalSource& source) {
  if (source.kind == SignalSource::Kind::file) return read_file_source(source);
  const auto answer = http_get(source.address, source.timeout, kLongestEndpoint);
  if (!answer) return fail(printable(source.address.to_string()) + ": " + answer.error().message());
  const bool open_metrics = answer->content_type.find("openmetrics") != std::string::npos;
  auto reading = read_endpoint(source, answer->body, open_metrics);
  if (!reading) return fail(printable(source.address.to_string()) + ": " + reading.error().message());
  return reading;
}

std::string to_text(const SignalReading& reading) {
  const auto number = [](std::optional<double> value) { return value ? fmt::format("{}", *value) : std::string("-"); };
  std::string text = number(reading.started) + "\n";
  for (const SignalReading::Series& one : reading.series)
    text += fmt::format("{} {} {}\n", one.value, number(one.time), one.labels);
  return text;
}

Result<SignalReading> parse_reading(std::string_view text) {
  const auto number = [](std::string_view word) { return word == "-" ? std::nullopt : to_double(word); };
  SignalReading reading;
  bool first = true;
  for (const std::string_view line : split(text, '\n')) {
    if (std::exchange(first, false)) {
      reading.started = number(line);
      continue;
    }
    if (line.empty()) continue;
    const std::size_t value = line.find(' ');
    const std::size_t time = value == std::string_view::npos ? value : line.find(' ', value + 1);
    const auto known = time == std::string_view::npos ? std::nullopt : to_double(line.substr(0, value));
    if (!known) return fail("the reading is damaged");
    reading.series.push_back(
        {std::string(line.substr(time + 1)), *known, number(line.substr(value + 1, time - value - 1))});
  }
  if (reading.series.empty()) return fail("the reading is damaged");
  return reading;
}

}  // namespace lull
