#pragma once
// Telemetry out of a Prometheus (Thanos, Mimir, VictoriaMetrics), as it was scraped: raw samples, a day at a time,
// of the signals that somebody wants. query_range would resample them and stop at 11 000 points a series.
//
// What comes is a file of its answers, one a day, as the reader of Prometheus's JSON takes it (trace/prometheus.h).

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "gpu/metric.h"
#include "trace/schema.h"

namespace lull::trace {

inline constexpr std::string_view kPrometheusPrefix = "prometheus:";

struct PrometheusQuery {
  std::string url;         // http://HOST:9090, with a path where there is one
  std::string match;       // more matchers: Hostname=~"gpu.*"
  std::string token_file;  // a file with the bearer token
  std::string save;        // where the answers are kept; empty: only while they are read
  std::int64_t from = 0;   // ms since 1970
  std::int64_t to = 0;
  std::function<void(const std::string& line)> note;  // told what is missing
};

struct PrometheusAnswers {
  std::shared_ptr<Fd> file;  // keeps `path` alive
  std::string path;
};

// "http://user:secret@host:9090/x" -> "host:9090": what may be shown.
std::string host_of_url(std::string_view url);

// The selector of all series that tell one of these signals, or who has the GPU. `columns` may name more.
std::string prometheus_selector(const std::vector<Metric>& wanted, const std::vector<ColumnChoice>& columns,
                                const std::string& match);

// A day that fails is asked for again, and then a gap. The error: no day could be had.
Result<PrometheusAnswers> fetch_prometheus(const PrometheusQuery& query, const std::vector<Metric>& wanted,
                                           const std::vector<ColumnChoice>& columns,
                                           const std::function<void(double part)>& progress);

}  // namespace lull::trace
