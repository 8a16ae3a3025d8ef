#pragma once
// Judges a job by what a Prometheus holds of its GPUs: pure, and without memory. The same rule on the same samples as
// live, on all GPUs of the job together. A GPU that Slurm gave to the job and that no fresh series tells of makes the
// answer unknown: an exporter that is down never looks like an idle GPU.
//
// Slurm's number of a GPU need not be the exporter's. The answer is unknown unless the job has all GPUs of the node, or
// the administrator says that both count alike. Either way the exporter must show as many GPUs as Slurm has there: one
// that is lost may shift the numbers of the others.

#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "gpu/metric.h"
#include "rule/evaluator.h"
#include "rule/rule.h"
#include "rule/truth.h"
#include "trace/schema.h"

namespace lull {

// The samples of one GPU, in order of time. Instants count from 1970, by the clock of Prometheus.
struct FleetGpu {
  std::string host;
  std::optional<unsigned> number;  // within its host; nothing: a part of one, or its label is not a number
  std::vector<Instant> at;
  std::array<std::vector<float>, kMetrics> value;  // each as long as `at`, or empty
};
// Out of a file of a Prometheus's answer.
Result<std::vector<FleetGpu>> read_fleet(const std::string& path, const std::vector<Metric>& metrics,
                                         const std::vector<trace::ColumnChoice>& labels);

// What such a rule lacks to be judged so; empty: nothing.
std::string why_no_fleet_rule(const Rule& rule);
// How far back a rule looks at most.
Duration reach_of(const Rule& rule);

struct FleetQuestion {
  std::vector<std::pair<std::string, unsigned>> gpus;  // node and number of each GPU of the job
  Instant from{};                                      // the job has them since then
  Instant now{};
  std::map<std::string, unsigned> node_gpus = {};  // how many GPUs Slurm has on each node of the job
  bool same_order = false;                         // exporters number them as Slurm does
};
struct FleetVerdict {
  Truth truth = Truth::unknown;
  Truth condition = Truth::unknown;  // without its outermost `for`
  Duration held{};
  Instant since{};
  Instant newest{};        // each GPU has a sample that is at least so new
  std::string why = {};    // of unknown
  Duration interval = {};  // the longest of its GPUs'
};
FleetVerdict judge_fleet_job(const Rule& rule, const FleetQuestion& question, const std::vector<FleetGpu>& fleet,
                             WhenMissing missing);

// "gpu1.cluster:9400" is the node gpu1, or gpu1.cluster.
bool is_host_of(std::string_view host, std::string_view node);

}  // namespace lull
