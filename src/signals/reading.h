#pragma once
// One reading of a source: what was found, as numbers. It may wait for a server or a disk, so a process beside the loop
// makes it (session/own_signals.h) and hands it over as text. What a command prints is read here as well.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "config/signal_source.h"

namespace lull {

inline constexpr std::size_t kLongestNumber = 4 << 10;    // of a file, or of what a command prints
inline constexpr std::size_t kLongestEndpoint = 4 << 20;  // of an answer of an endpoint
inline constexpr std::size_t kLongestReading = 2 << 20;   // of a reading as text

struct SignalReading {
  struct Series {
    std::string labels;  // that tell it from the others
    double value = 0;
    std::optional<double> time;  // seconds since 1970: when it was written, or is of
    bool operator==(const Series&) const = default;
  };
  std::vector<Series> series;
  std::optional<double> started;  // when the server's process started, where it says so
  bool operator==(const SignalReading&) const = default;
};

// Of a file or an endpoint; waits up to the source's timeout.
Result<SignalReading> read_source(const SignalSource& source);
// The endpoint's answer.
Result<SignalReading> read_endpoint(const SignalSource& source, std::string_view body, bool open_metrics);
// The only number in a text.
Result<SignalReading> read_number(std::string_view text, std::optional<double> time = {});

// A reading as text between two processes, and back.
std::string to_text(const SignalReading& reading);
Result<SignalReading> parse_reading(std::string_view text);

// ---- Prometheus' text format

// Prometheus' text format, as far as a number is wanted of it: the series of one metric, with their labels, values and
// times. Strict: a line that cannot be read makes the whole answer unreadable, as it does for Prometheus.
using SeriesLabels = std::vector<std::pair<std::string, std::string>>;

struct ExposedSeries {
  std::string name;
  SeriesLabels labels;  // in the order of their names
  double value = 0;
  std::optional<double> time;  // seconds since 1970, where the server says when it is of
};

// The series of these names. `open_metrics`: its times are in seconds, and it ends with "# EOF".
Result<std::vector<ExposedSeries>> read_exposition(std::string_view text, const std::vector<std::string_view>& names,
                                                   bool open_metrics = false);

}  // namespace lull
