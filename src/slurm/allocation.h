#pragma once
// What Slurm gave to a job on this node: one file for each job in a folder (/run/lull/slurm/JOBID), which `lull slurm
// prolog` writes and `lull slurm epilog` removes. A file is TOML. It counts only if root wrote it into a folder that
// no other user can write to: it decides who may keep a job, and what is done to it.
//
// Where there are none, what other tools' prologs write is read: /run/gpustat/N ("JOBID UID", one for each GPU) and
// dcgm-exporter's mapping folder (a file for each GPU, a job id in each line). These know neither the nodes of a job
// nor how often it was restarted: such a job is judged and shown, and nothing is done to it through Slurm.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/result.h"

namespace lull::slurm {

// "22", "slurm:22": 1 to 4294967295.
std::optional<std::uint64_t> parse_job_number(std::string_view text);

struct Allocation {
  std::uint64_t job = 0;
  std::string node = {};          // this node, as Slurm calls it
  std::optional<uid_t> uid = {};  // whose job it is
  std::string user = {};
  std::vector<unsigned> gpus = {};        // as Slurm counts them (slurm/gres.h)
  bool shares_gpus = false;               // it has parts of GPUs, and slurmd does not say of which
  std::string nodes = {};                 // all nodes of the job, as Slurm writes them; empty: not known
  std::optional<unsigned> restarts = {};  // how often it was requeued
  std::uint64_t het_job = 0;              // the first component of the het job that it is a component of; 0: of none
  std::string partition = {};
  std::string account = {};
  std::string qos = {};
  std::string comment = {};  // the user's
  std::string rule = {};     // what the user asked for with --gpu-idle
  std::string sluid = {};    // what its cgroups are called by, where Slurm does so
  WallTime start{};

  std::string name() const { return "slurm:" + std::to_string(job); }
  std::string run() const;  // which run of the job it is
  bool operator==(const Allocation&) const = default;
};

std::string to_text(const Allocation& allocation);
// `name`: what a complaint calls it.
Result<Allocation> parse_allocation(std::string_view text, std::string_view name);

// "0,2", "0-3"
Result<std::vector<unsigned>> parse_gpu_numbers(std::string_view text);

// Where the files are: `chosen`, else LULL_SLURM_DIR, else /run/lull/slurm. %n in it is this node's name.
std::string allocation_folder(std::string_view chosen = {});
// SLURMD_NODENAME where that is set, else the host name up to its first dot.
std::string node_name();

// A file of the folder that only root (and `trusted`) can have written.
Result<std::string> read_trusted_file(const std::string& folder, const std::string& name, uid_t trusted = 0);
// Atomically, readable for all users. Makes the folder.
Result<> write_trusted_file(const std::string& folder, const std::string& name, std::string_view text);
Result<> write_allocation(const std::string& folder, const Allocation& allocation);
Result<> remove_allocation(const std::string& folder, std::uint64_t job);  // one that is not there is removed

struct Allocations {
  std::vector<Allocation> all = {};       // in the order of their numbers
  std::vector<std::string> refused = {};  // in words: files that do not count, and why
};
// Those in the folder. An error: it is not there, cannot be read, or is not root's alone.
// `trusted`: who else but root may have written them.
Result<Allocations> read_allocations(const std::string& folder, uid_t trusted = 0);

// What others wrote. A folder that is not there has none.
Allocations read_gpustat(const std::string& folder, const std::string& node, uid_t trusted = 0);
Allocations read_dcgm_mapping(const std::string& folder, const std::string& node, uid_t trusted = 0);

// ---- `lull slurm prolog` and `lull slurm epilog`
//
// Slurm drains a node whose Prolog fails: these always end with 0, within a second, whatever happens. What went wrong
// is one line on stderr, which slurmd logs.

using Environment = std::function<std::optional<std::string>(const char* name)>;

// What slurmd tells its Prolog.
Result<Allocation> allocation_from(const Environment& environment, const std::string& node, WallTime now);

// Runs `body` in a process of its own and waits for it no longer than `limit`; what it complains of, or that it took
// too long. The rest of it is killed, or left behind where it hangs in the kernel.
std::string complaint_within(Duration limit, const std::function<Result<>()>& body);

}  // namespace lull::slurm
