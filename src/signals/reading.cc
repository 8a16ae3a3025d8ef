#include "signals/reading.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <limits>

#include "base/fd.h"
#include "base/http_get.h"
#include "base/text.h"

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
  // Its content is not shown: by a link it may be another user's secret.
  if (!reading) return fail(printable(source.file) + " " + reading.error().message());
  return reading;
}

constexpr std::size_t kMostSeries = 10'000;

bool name_begins(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':'; }
bool name_goes_on(char c) { return name_begins(c) || (c >= '0' && c <= '9'); }
bool blank(char c) { return c == ' ' || c == '\t'; }

// As Go's ParseFloat, which Prometheus reads with.
std::optional<double> number(std::string_view text) {
  const std::string small = lowered(text);
  if (small == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (small == "inf" || small == "+inf") return std::numeric_limits<double>::infinity();
  if (small == "-inf") return -std::numeric_limits<double>::infinity();
  if (text.starts_with('+')) text.remove_prefix(1);
  return to_double(text);
}

// One line: NAME [{LABEL="VALUE",…}] VALUE [TIME]
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  std::optional<ExposedSeries> read(bool open_metrics) {
    ExposedSeries series;
    skip_blanks();
    series.name = name();
    if (series.name.empty()) return std::nullopt;
    skip_blanks();
    if (take('{') && !labels(series.labels)) return std::nullopt;
    const auto value = number(word());
    if (!value) return std::nullopt;
    series.value = *value;
    if (const std::string_view time = word(); !time.empty() && !(open_metrics && time.starts_with('#'))) {
      const auto at = to_double(time);
      if (!at) return std::nullopt;
      series.time = open_metrics ? *at : *at / 1000;
      if (const std::string_view more = word(); !more.empty() && !(open_metrics && more.starts_with('#')))
        return std::nullopt;
    }
    std::ranges::sort(series.labels);
    return series;
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && blank(rest_.front())) rest_.remove_prefix(1);
  }
  bool take(char c) {
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  std::string name() {
    if (rest_.empty() || !name_begins(rest_.front())) return {};
    const auto end = std::ranges::find_if_not(rest_, name_goes_on) - rest_.begin();
    const std::string found(rest_.substr(0, static_cast<std::size_t>(end)));
    rest_.remove_prefix(found.size());
    return found;
  }
  std::string_view word() {
    skip_blanks();
    const auto end = static_cast<std::size_t>(std::ranges::find_if(rest_, blank) - rest_.begin());
    const std::string_view found = rest_.substr(0, end);
    rest_.remove_prefix(end);
    return found;
  }
  bool labels(SeriesLabels& all) {
    for (;;) {
      skip_blanks();
      if (take('}')) return true;
      std::string label = name();
      skip_blanks();
      if (label.empty() || !take('=')) return false;
      skip_blanks();
      if (!take('"')) return false;
      std::string value;
      for (;;) {
        if (rest_.empty()) return false;
        if (take('"')) break;
        if (take('\\')) {
          if (rest_.empty()) return false;
          value += rest_.front() == 'n' ? '\n' : rest_.front();
        } else {
          value += rest_.front();
        }
        rest_.remove_prefix(1);
      }
      all.emplace_back(std::move(label), std::move(value));
      skip_blanks();
      if (!take(',') && (rest_.empty() || rest_.front() != '}')) return false;
    }
  }

  std::string_view rest_;
};

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

// ---- Prometheus' text format

Result<std::vector<ExposedSeries>> read_exposition(std::string_view text, const std::vector<std::string_view>& names,
                                                   bool open_metrics) {
  std::vector<ExposedSeries> found;
  // The format ends with a newline: without one the answer was cut.
  if (!text.empty() && text.back() != '\n') return fail("the answer ends in the middle of a line");
  std::size_t line_number = 0;
  bool ended = !open_metrics;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::string_view seen = trim(line);
    ended = ended || seen == "# EOF";
    if (seen.empty() || seen.front() == '#') continue;
    auto series = LineReader(line).read(open_metrics);
    if (!series) return fail(fmt::format("line {} of the answer is not Prometheus' text format", line_number));
    if (std::ranges::find(names, series->name) == names.end()) continue;
    if (found.size() == kMostSeries) return fail(fmt::format("more than {} series", kMostSeries));
    found.push_back(*std::move(series));
  }
  if (!ended) return fail("the answer is cut short: OpenMetrics ends with # EOF");
  return found;
}

}  // namespace lull
