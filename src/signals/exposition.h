#pragma once
// Prometheus' text format, as far as a number is wanted of it: the series of one metric, with their labels, values and
// times. Strict: a line that cannot be read makes the whole answer unreadable, as it does for Prometheus.

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace lull {

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
