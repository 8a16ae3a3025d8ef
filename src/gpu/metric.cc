#include "gpu/metric.h"

namespace lull {

std::optional<Metric> metric_by_name(std::string_view name) {
  for (const MetricInfo& row : kMetricTable)
    if (row.name == name) return row.metric;
  return std::nullopt;
}

std::optional<Metric> metric_by_field(std::string_view field) {
  for (const MetricInfo& row : kMetricTable)
    if (row.field == field) return row.metric;
  return std::nullopt;
}

}  // namespace lull
