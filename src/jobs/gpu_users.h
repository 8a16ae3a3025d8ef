#pragma once
// GpuUsers answers for all commands: which processes use this GPU, which users own them, and which job has them?
//
// - Which processes: those that the driver lists. A process counts only if it is identified: it holds the GPU's device
//   file, has had its pid since the driver first listed it (sense/proof.h), and still runs. An unidentified process is
//   unknown, and the GPU is not free.
// - Which user: by /proc; a subordinate uid belongs to its user (base/users.h).
// - Which job: a Slurm job, a container, a lease, or a process tree (JobFinder). If the leases cannot be
//   read, the job is unknown, and trouble() says why.
//
// A GPU that was unreachable (lost, or no permission) since before the first scan tells nothing. Usually no process can
// use it, but a process that holds its device file may have worked there before, or still work there.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/process.h"
#include "base/result.h"
#include "gpu/snapshot.h"
#include "lease/folder.h"
#include "sense/openers.h"
#include "sense/processes.h"

namespace lull {

// A container, pod or Slurm job that a process is in, by its cgroup, and who could have named it so. A user with a
// delegated cgroup may make one in it with the name of another user's container: the whole path is the identity, and a
// cgroup that a user made counts only for that user's processes.
struct Container : NamedCgroup {
  std::optional<uid_t> maker = {};  // as maker_of_cgroup()
  bool is_slurm() const { return kind == CgroupKind::slurm; }
  // Made by root: all who are in it belong together, whoever they run as.
  bool by_root() const { return maker == uid_t{0}; }
  // May a process of this user be taken for one of the container?
  bool may_hold(uid_t user) const;
};

// `pid`: 0 for our own. In the order of named_cgroups(); none: it is in none, or has ended.
Result<std::vector<Container>> find_containers(const Root& root, pid_t pid);

// The number of the job that a process of slurmstepd's is in, by the title of slurmstepd, which runs as root: for paths
// that name the job by its SLUID, and where Slurm makes no cgroups (proctrack/pgid, proctrack/linuxproc). Nothing: no
// ancestor is slurmstepd.
std::optional<std::string> job_of_slurmstepd(const Root& root, const ProcessEntry& entry);

// A part of what is known, so that a look costs what has changed and not what is there: each process is looked at once
// in as many looks as there are parts, and with every look where there are few.
struct Rotation {
  static constexpr std::size_t kFew = 512;
  static constexpr std::size_t kInTurn = 256;
  std::uint64_t look = 0;
  std::uint64_t parts = 1;
  static Rotation of(std::uint64_t look, std::size_t count) { return {look, count > kFew ? count / kInTurn : 1}; }
  bool is(pid_t pid) const { return static_cast<std::uint64_t>(pid) % parts == look % parts; }
};

// Which job a process is in. In this order: a Slurm job by its cgroup, or by slurmstepd above it, a pod, a container
// (unless we are in it as well), the holder of a lease with what it started, or a process tree: from the process up to
// below the interactive shell, the terminal or the service that it was started from. Where the tree is broken, since a
// launcher has ended or another user's process is above, those of one process group stay together, and with the leader
// of their session if that is no such shell. The job of a process that uses a GPU is found when it is first seen, and
// stays so, also for those below it that come later: the top of a tree may end long before the rest.
class JobFinder {
 public:
  using Leases = std::function<Result<std::vector<LeaseInfo>>()>;
  struct Job {
    std::string id;
    std::string title;
  };

  explicit JobFinder(Root root = {}, Leases leases = nullptr);

  void begin_look() { read_leases_.reset(); }
  // The numbers of Slurm jobs by their SLUIDs, as whoever allocates says.
  void set_sluids(std::map<std::string, std::uint64_t> sluids) { sluids_ = std::move(sluids); }
  const Result<std::vector<LeaseInfo>>& leases();  // read once in a look, where they are needed
  // The job as it was remembered, or as it is found now. An error: the leases cannot be read, and it may be of one.
  Result<Job> find(const ProcessEntry& entry, uid_t user);
  // The same, and remembers it for as long as the process lives.
  Result<Job> remember(const ProcessEntry& entry, uid_t user);
  // Who has ended, in turn; `is_listed` are known to live.
  void forget_ended(std::uint64_t look, const std::function<bool(const ProcessId&)>& is_listed);

 private:
  struct Known {
    Job job;
    pid_t group = 0;  // of the process, when it was last seen
    pid_t session = 0;
  };
  Result<Job> search(const ProcessEntry& entry, uid_t user);
  Job job_in(const Container& container, const ProcessEntry& entry, uid_t user);
  const std::string& name_for(const std::string& what, const std::string& shown);
  Job tree_of(const ProcessEntry& entry);
  std::optional<Job> known_as(const ProcessId& id) const;
  std::optional<Job> known_group(const ProcessEntry& one) const;
  std::optional<ProcessEntry> next_above(const ProcessEntry& one) const;
  std::optional<ProcessEntry> leader_of(const ProcessEntry& one) const;
  bool is_alive(const ProcessId& id) const;

  Root root_;
  Leases leases_;
  std::optional<Result<std::vector<LeaseInfo>>> read_leases_;
  std::map<std::string, std::uint64_t> sluids_;
  std::vector<std::string> own_containers_;   // the paths of their cgroups
  std::map<std::string, std::string> names_;  // of jobs in containers and with leases, as they are shown
  std::map<ProcessId, Known> known_;          // who was remembered
  std::map<ProcessId, Known> in_trees_;       // and all between them and the top of their tree
};

// How much is asked of each process.
enum class UserDetail : std::uint8_t {
  none,      // nothing: only the GPUs themselves are looked at
  identity,  // whether it is identified
  jobs,      // and whose it is, of which job, whether it is stopped
};

// One GPU and who uses it.
struct GpuUse {
  Device device;
  std::vector<GpuProcess> processes = {};  // those that are listed, whatever is known of each, without those that ended
  // Those who hold its device file, with their jobs: they may be at work there. Looked at with UserDetail::jobs, and
  // where the driver does not tell: it is not reachable, or unproven.
  std::vector<GpuProcess> file_holders = {};
  bool listed = false;     // its processes could be looked at
  bool complete = false;   // and all processes there are identified, and their jobs known
  bool hides = false;      // the driver may leave processes out, or lists some that cannot be seen from here
  bool empty = false;      // no process has a context there: it sleeps, or almost none of its memory is in use
  bool asleep = false;     //
  bool forbidden = false;  // no permission
  bool reachable = false;  // it was not lost or closed to us all the time
  // Not complete only for processes that are not proven to be there: whoever else is there holds its device file.
  bool unproven = false;

  // The process, or one of the job, may be there without being identified.
  bool may_have(pid_t pid) const;
  bool may_have_job(const std::string& job) const;
};

// A GPU that is split shows the processes of its parts as well: the parts are what counts.
bool is_split(const std::vector<GpuUse>& uses, const Device& device);
// "tree:4711@123" is tree:4711 to people: its start time is for us.
std::string shown_job(const std::string& job);

// What an identified process does there. Display servers, monitors and the MPS server have no job of their own; a
// process that only draws holds nothing, but a job with such a process works there, or may.
bool holds(const GpuProcess& one);
bool draws(const GpuProcess& one);
// It computes there, and is not identified.
bool is_unknown(const GpuProcess& one);

class GpuUsers {
 public:
  using Leases = JobFinder::Leases;
  explicit GpuUsers(Root root = {}, Leases leases = nullptr);
  virtual ~GpuUsers() = default;
  GpuUsers(const GpuUsers&) = delete;
  GpuUsers& operator=(const GpuUsers&) = delete;

  // One for each device of the snapshot. What is known of a process is read again in turn: of all of them with every
  // look where there are few, else of some (Rotation), so that a look costs what has changed and not what is there.
  // `fresh`: all of it is read now.
  virtual std::vector<GpuUse> look(const Snapshot& snapshot, UserDetail detail, bool fresh = false);
  // The same for who goes by readings (pick, fill, status): of the processes in them only those stay proven that are
  // identified. One that has ended since it was listed is stale.
  void identify_in(Snapshot& snapshot);

  // Who holds the device files of these places in the inventory of the previous look. It takes long to look at the
  // files of every process, so the last answer about the very same GPUs is good for a while, unless the previous look
  // was fresh.
  const FileHolders& file_holders(const std::vector<std::size_t>& gpus);

  void set_sluids(std::map<std::string, std::uint64_t> sluids) { jobs_.set_sluids(std::move(sluids)); }
  void forget_reached() { reached_.clear(); }  // which GPUs were reachable: another job begins
  // As they were during the previous look; none where they could not be read, and trouble() says why.
  const std::vector<LeaseInfo>& leases();
  const std::string& trouble() const { return trouble_; }  // of the previous look; empty: none
  const Root& root() const { return root_; }

 private:
  // What was read of an identified process.
  struct Known {
    GpuProcess process;
    std::uint64_t look = 0;     // that last listed it
    std::uint64_t checked = 0;  // the look with which it was read
  };
  struct Look {
    UserDetail detail;
    bool fresh;
    Rotation rotation;
  };
  struct Scan {
    Instant at{};
    FileHolders found;
  };
  bool identify(GpuProcess& process, const Look& how);
  const Known* find_known(const GpuProcess& process, const Look& how) const;
  std::optional<Known> read(const ProcessEntry& entry, UserDetail detail);
  void add_job(GpuProcess& process, const ProcessEntry& entry, uid_t user, bool remember);
  std::optional<GpuProcess> file_holder(pid_t pid);
  void add_file_holders(std::vector<GpuUse>& uses);
  bool is_frozen(pid_t pid);

  Root root_;
  JobFinder jobs_;
  std::unordered_map<pid_t, Known> known_;
  std::uint64_t looks_ = 0;
  std::map<std::string, bool> frozen_;  // by cgroup, for the length of a look
  std::set<DeviceId> reached_;
  std::string trouble_;
  std::shared_ptr<const Inventory> inventory_;  // of the previous look
  Instant at_{};
  bool fresh_ = false;
  std::map<std::vector<std::size_t>, Scan> scans_;  // of that inventory
};

}  // namespace lull
