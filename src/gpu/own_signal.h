#pragma once
// Names of the user's own signals. A name gets a place behind the built-in metrics and keeps it for the life of the
// process, so that a rule stays a plain value that holds a Metric. Where the numbers come from is another matter
// (config/signal_source.h); a named signal without a source is unknown.

#include <span>
#include <string_view>

#include "base/result.h"
#include "gpu/metric.h"

namespace lull {

// What a trace, JSON and CSV call the signal `requests`: signal_requests.
inline constexpr std::string_view kOwnFieldPrefix = "signal_";

// The signal of this name; from now on rules may use it. Refused: a name that lull or its language uses, one that is no
// word of small letters, and more than kOwnSignals names. May be called from any thread.
Result<Metric> name_signal(std::string_view name);
// Those that have a name by now.
std::span<const MetricInfo> own_signals();

}  // namespace lull
