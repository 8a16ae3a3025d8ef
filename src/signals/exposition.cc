#include "signals/exposition.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/text.h"

namespace lull {
namespace {

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
