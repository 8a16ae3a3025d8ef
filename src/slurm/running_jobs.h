#pragma once
// The jobs of the whole cluster that run now, as squeue lists them, the GPUs that Slurm gave to one of them on each of
// its nodes, as `scontrol show job -d` says, and how many GPUs those nodes have, as sinfo says. For a judge that sits
// on no node (session/fleet_session.h).
//
// scontrol prints the job's name as it is, which may look like any other line. So the nodes must be those that squeue
// has, each once: a forged line leaves its job without a judgement.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "slurm/verb.h"

namespace lull::slurm {

struct RunningJob {
  std::uint64_t job = 0;
  unsigned restarts = 0;
  uid_t uid = 0;
  std::string user = {};
  WallTime start{};
  std::uint64_t het_job = 0;                       // its first component; 0: it has no components
  std::vector<std::uint64_t> het_components = {};  // all of them
  std::string partition = {};
  std::string qos = {};
  std::string account = {};
  bool operator==(const RunningJob&) const = default;
};
Command running_jobs_command();
// An error: these are not lines of squeue.
Result<std::vector<RunningJob>> read_running_jobs(std::string_view output);

Command job_nodes_command(std::uint64_t job);
// All nodes of the job, where it is this run of it. An error: it does not run any more, or that is not what squeue
// says.
Result<std::vector<std::string>> read_job_nodes(std::string_view output, const RunningJob& job);

struct GivenGpus {
  std::vector<NodeGpu> gpus = {};
  WallTime since{};  // it has run without a break since then: its start, or when it was resumed last
};
Command job_details_command(std::uint64_t job);
// `nodes`: those of read_job_nodes().
Result<GivenGpus> read_job_details(std::string_view output, std::uint64_t job, const std::vector<std::string>& nodes);

// How many GPUs Slurm has on each of these nodes.
Command node_gpus_command(const std::vector<std::string>& nodes);
Result<std::map<std::string, unsigned>> read_node_gpus(std::string_view output, const std::vector<std::string>& nodes);

}  // namespace lull::slurm
