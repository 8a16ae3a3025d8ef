#pragma once
// Telemetry out of a Prometheus (Thanos, Mimir, VictoriaMetrics), as it was scraped: raw samples, a day at a time,
// of the wanted signals. query_range would resample them and stop at 11 000 points a series.
//
// What comes is a file of its answers, one a day, as the reader of Prometheus's JSON takes it (trace/prometheus.cc).

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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

// "prometheus:http://HOST:9090/" -> "http://HOST:9090"
Result<std::string> url_of_prometheus(const std::string& word);

// The selector of all series that tell one of these signals, or who has the GPU. `columns` may name more.
std::string prometheus_selector(const std::vector<Metric>& wanted, const std::vector<ColumnChoice>& columns,
                                const std::string& match);

// What curl is told to ask for the last `range` of these series, up to a time (ms since 1970) or to the server's now.
std::string prometheus_request(const std::string& url, const std::string& token, const std::string& selector,
                               Duration range, std::optional<std::int64_t> to = {});
Result<std::string> read_token(const PrometheusQuery& query);  // empty: it needs none
bool is_success(std::string_view answer);
// What a server says that could not ask all who have the data (Thanos, VictoriaMetrics); empty: it has said all.
std::string partial_answer(std::string_view answer);

// A day that fails is asked for again, and then a gap. The error: no day could be had.
Result<PrometheusAnswers> fetch_prometheus(const PrometheusQuery& query, const std::vector<Metric>& wanted,
                                           const std::vector<ColumnChoice>& columns,
                                           const std::function<void(double part)>& progress);

}  // namespace lull::trace
