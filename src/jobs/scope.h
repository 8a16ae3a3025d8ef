#pragma once
// Which GPUs a watching command looks at. Of a job, its own and no others: those that it was
// told (--gpus), else those that the job was given (CUDA_VISIBLE_DEVICES and what other vendors
// have for it, its lease, its Slurm allocation), else those on which its processes have a context; while it has none it
// is not judged, or (all_without_context) judged by all GPUs. What is seen wins over what a variable says: a GPU with a
// context of the job's is always in scope, unless --gpus leaves it out. Without a job: all GPUs that are ours to read,
// without integrated ones beside others if that is asked for.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/process.h"
#include "base/result.h"
#include "engine/event.h"
#include "gpu/snapshot.h"
#include "jobs/gpu_users.h"
#include "jobs/shares.h"
#include "sense/select.h"

namespace lull {

// Which GPUs a job uses, by what GpuUsers has answered so far. A GPU of the job stays one until a successful look at
// its processes shows none of the job's: a list that cannot be read, a GPU that is lost, hangs or has vanished, a
// driver that was reloaded say nothing, and what says nothing takes nothing away.
class JobGpus {
 public:
  using IsOurs = std::function<bool(pid_t)>;  // a process of the job

  // `job_is_new`: no process of the job is older than the first look.
  explicit JobGpus(std::shared_ptr<GpuUsers> users = std::make_shared<GpuUsers>(), bool job_is_new = false)
      : users_(std::move(users)), job_is_new_(job_is_new) {}

  // Without `is_ours` there is no job. `fresh`: as in GpuUsers.
  void look(const Snapshot& snapshot, const IsOurs& is_ours, bool fresh = false);
  void forget();  // a new job

  // Devices of the newest inventory first, in its order; then those that are not in it any more.
  std::vector<Device> held() const;
  // Those of which it is unknown now whether the job is there as well: their processes could not be looked at, or
  // some of them cannot be placed.
  std::vector<Device> unseen() const;
  // Those that have always answered "no permission". They are not for us if no process of the job has opened them;
  // without a job, if we may not open them either and no process is seen to hold them.
  std::vector<Device> closed() const;
  // Those that say so and count all the same.
  std::vector<Device> silent() const;
  bool ever() const { return ever_; }  // the job has had a context
  // Not one list of processes could be read so far: that none is known to be the job's means nothing.
  bool blind() const;

  // `job_util`, where the shares of processes were asked for.
  void add_share(Facts& job, const std::vector<Device>& scope) const;

  // One of the job's processes with a context is stopped (SIGSTOP; with `traced` also by a debugger).
  std::optional<ProcessEntry> stopped(bool traced) const;
  // The cgroup of one of them is frozen (`docker pause`), or that of one of these.
  bool frozen(std::vector<pid_t> others) const;

 private:
  struct Place {
    Device device;
    bool listed = false;          // in the newest inventory
    bool held = false;            // the job has a context there
    bool looked = false;          // its processes could be read at least once
    bool settled = false;         // now: whether the job is there is known
    bool doubtful = false;        // now: unless its device file tells: nobody of the job holds it
    bool reachable = false;       // it was neither lost nor closed to us all the time
    bool opened = false;          // it was, and a process of the job holds its device file; without a job: see closed()
    bool forbidden = false;       // now: no permission
    std::vector<ProcessId> ours;  // of the job's processes, when last seen
    bool is_silent() const { return listed && forbidden && !reachable; }
  };
  template <class Is>
  std::vector<Device> those(Is is) const;
  void use(const Inventory& inventory);
  void look_at(Place& place, const GpuUse& use, const IsOurs& is_ours);
  void look_at_files(const IsOurs& is_ours);
  void look_at_closed();
  void settle(Place& place, std::vector<ProcessId> ours);

  std::shared_ptr<GpuUsers> users_;
  bool job_is_new_ = false;
  std::shared_ptr<const Inventory> inventory_;
  std::vector<Place> places_;  // one for each device of the inventory, then those that vanished
  bool ever_ = false;
  JobShares shares_;
};

// What its environment says about the GPUs of a job.
struct JobEnvironment {
  RuntimeVariables variables = {};
  std::string lease = {};  // the id that `lull pick` gave
  std::string slurm = {};  // numbers of device files: "0,2"

  static JobEnvironment of_this_process();
};

struct ScopeOptions {
  std::string gpus = {};
  std::string option = "--gpus";  // what these are called where they are given
  bool absent_left_out = false;   // of those that --gpus names: who is not there is said, the others count
  JobEnvironment environment = {};
  JobGpus::IsOurs is_ours = nullptr;  // null: there is no job, contexts say nothing
  bool job_is_new = false;            // no process of the job is older than the first sample
  bool without_integrated = false;    // where all count and there is another GPU: it may draw, or never work
  bool all_without_context = false;   // a job that was given no GPU and has no context is judged by all of them
  bool stricter_with_more = true;     // one GPU more can never make the rule hold (Rule::stricter_with_more_gpus)
  bool needs_gpu = true;              // the rule looks at a signal of GPUs; one on `cpu` alone needs none
  std::shared_ptr<GpuUsers> users = std::make_shared<GpuUsers>();
};

class ScopeFinder {
 public:
  explicit ScopeFinder(ScopeOptions options)
      : options_(std::move(options)), contexts_(options_.users, options_.job_is_new) {}

  const Scope& find(const Snapshot& snapshot, bool fresh = false);  // `fresh`: as in GpuUsers
  bool needs_processes() const { return options_.is_ours != nullptr; }
  // --gpus that names what is not there; empty: nothing to say.
  const std::string& trouble() const { return trouble_; }
  // For a person, each once.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  const JobGpus& contexts() const { return contexts_; }
  void forget_job();                                 // another one begins
  void set_environment(JobEnvironment environment);  // the job was given something else

 private:
  // What the job was given, however.
  struct Given {
    std::vector<Device> devices;
    std::string by;           // "CUDA_VISIBLE_DEVICES"; empty: nothing was given
    bool uncertain = false;   // which GPUs are meant cannot be known,
    bool may_be_any = false;  // and others than these may be
    std::size_t count = 0;    // how many were meant
    std::string none = {};    // for a person: why that is no GPU
    bool unread = false;      // it could not be read: to be tried again
  };
  void resolve();
  void resolve_named();
  Result<std::vector<std::size_t>> named_that_exist();
  Given given_now();
  Given by_variable();
  Given by_lease();
  Given by_slurm() const;
  void keep_vanished(std::vector<Device>& devices, const std::vector<Device>& before) const;
  std::vector<Device> held() const;
  std::vector<Device> everything();
  void leave_out_integrated(std::vector<Device>& devices);
  void compose();
  void not_seen(std::string why);
  void compose_given(const std::vector<Device>& contexts);
  void add_unseen();
  void compose_contexts(const std::vector<Device>& contexts);
  void compose_all();
  void not_judged_for(const std::vector<Device>& unseen);
  void note(std::string text);

  ScopeOptions options_;
  std::shared_ptr<const Inventory> inventory_;
  JobGpus contexts_;
  Given given_;
  std::vector<Device> all_;  // that there ever were, where all count
  Scope scope_;
  std::string trouble_;
  std::vector<std::string> notes_;
  std::set<std::string> noted_;
};

}  // namespace lull
