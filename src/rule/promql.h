#pragma once
// A rule as a query of Prometheus that never answers yes before lull does. Prometheus knows neither gaps nor unknown
// values: `max_over_time(util[30m]) < 1` is yes for a GPU of which two samples were seen. So the query looks at the
// condition at every step of a third of an interval, and asks for more than the rule does:
//
//   - at each step of the whole window a value is there that is younger than three intervals less one step, so that
//     every gap that breaks a streak leaves a step without a value;
//   - no two samples lie in one step, so that each is seen;
//   - the signals of one sample have one time, and so have the GPUs of a host;
//   - now, the condition holds for values younger than one and a half intervals;
//   - the window is longer than the rule's time by that and a step, so that the streak is as long as the rule asks
//     between its own samples;
//   - what lull learns of a card may be absent in a sample: it counts only where it is of the same time, and a GPU
//     without it is neither a yes nor left out of all(…);
//   - of a job or a host, every GPU that it had within a day is there all the time.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "rule/rule.h"

namespace lull {

enum class PromPer : std::uint8_t { gpu, job, host };
enum class PromNames : std::uint8_t { dcgm, lull };

struct PromOptions {
  PromPer per = PromPer::gpu;
  PromNames names = PromNames::dcgm;
  Duration interval = std::chrono::seconds(30);  // between two scrapes
  std::vector<std::string> job_labels = {};      // empty: hpc_job, or job_id of lull's own names
};

// Refuses what cannot be expressed without being early: the error names the part of the rule.
Result<std::string> to_promql(const Rule& rule, const PromOptions& options);

// The same as a file of alert rules with this one in it.
Result<std::string> to_prometheus_alert(const Rule& rule, const PromOptions& options, const std::string& alert);

}  // namespace lull
