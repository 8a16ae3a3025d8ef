#pragma once
// What was observed as Prometheus reads it. Unknown means no sample, never 0. Base units, and no label that is new with
// every process: neither a pid nor a command.

#include <string>
#include <string_view>

#include "base/clock.h"
#include "serve/observer.h"

namespace lull {

struct MetricsOptions {
  std::string_view version;
  std::string host;         // for the aliases
  bool dcgm_names = false;  // also by the names of dcgm-exporter
};

// `lull_up 0` and nothing else where the observer is not up.
std::string metrics_text(const Observer& observer, Instant now, const MetricsOptions& options);

// The value of a label between quotes: one line, valid UTF-8.
std::string label_value(std::string_view text);

}  // namespace lull
