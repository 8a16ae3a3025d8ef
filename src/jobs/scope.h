#pragma once
// Which GPUs a watching command looks at. Of a job, its own and no others: those that it was
// told (--gpus), else those that the job was given (CUDA_VISIBLE_DEVICES, its lease, its Slurm
// allocation), else those on which its processes have a context; before it has one it is not
// judged. What is seen wins over what a variable says: a GPU with a context of the job's is
// always in scope, unless --gpus leaves it out. Without a job: all GPUs that are ours to read.

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/event.h"
#include "gpu/snapshot.h"
#include "jobs/contexts.h"

namespace lull {

// What its environment says about the GPUs of a job.
struct JobEnvironment {
  std::optional<std::string> cuda_visible_devices = {};
  std::optional<std::string> cuda_device_order = {};
  std::string lease = {};  // the id that `lull pick` gave
  std::string slurm = {};  // numbers of device files: "0,2"

  static JobEnvironment of_this_process();
};

struct ScopeOptions {
  std::string gpus = {};
  bool absent_left_out = false;  // of those that --gpus names: who is not there is said, the others count
  JobEnvironment environment = {};
  JobContexts::IsOurs is_ours = nullptr;  // null: there is no job, contexts say nothing
  bool stricter_with_more = true;         // one GPU more can never make the rule hold (Rule::stricter_with_more_gpus)
  bool needs_gpu = true;                  // the rule looks at a signal of GPUs; one on `cpu` alone needs none
  Root root = {};                         // where the job's processes are looked at
};

class ScopeFinder {
 public:
  explicit ScopeFinder(ScopeOptions options) : options_(std::move(options)), contexts_(options_.root) {}

  const Scope& find(const Snapshot& snapshot);
  bool needs_tenants() const { return options_.is_ours != nullptr; }
  // --gpus that names what is not there; empty: nothing to say.
  const std::string& trouble() const { return trouble_; }
  // For a person, each once.
  std::vector<std::string> take_notes() { return std::exchange(notes_, {}); }
  const JobContexts& contexts() const { return contexts_; }
  void forget_job();  // another one begins

 private:
  // What the job was given, however.
  struct Given {
    std::vector<Device> devices;
    std::string by;          // "CUDA_VISIBLE_DEVICES"; empty: nothing was given
    bool uncertain = false;  // which GPUs are meant cannot be known: all may be
    std::size_t count = 0;   // how many were meant
    std::string none = {};   // for a person: why that is no GPU
  };
  void resolve();
  void resolve_named();
  Result<std::vector<std::size_t>> named_that_exist();
  Given given_now();
  Given by_variable();
  Given by_lease() const;
  Given by_slurm() const;
  void keep_vanished(std::vector<Device>& devices, const std::vector<Device>& before) const;
  std::vector<Device> held() const;
  std::vector<Device> everything();
  void compose();
  void compose_given(const std::vector<Device>& contexts);
  void add_unseen();
  void compose_contexts(const std::vector<Device>& contexts);
  void note(std::string text);

  ScopeOptions options_;
  std::shared_ptr<const Inventory> inventory_;
  JobContexts contexts_;
  Given given_;
  std::vector<Device> all_;  // that there ever were, where all count
  Scope scope_;
  std::string trouble_;
  std::vector<std::string> notes_;
  std::set<std::string> noted_;
};

}  // namespace lull
