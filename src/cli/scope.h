#pragma once
// Which GPUs a watching command looks at: those that it was told (--gpus), else those
// that the job may see (CUDA_VISIBLE_DEVICES), else those on which the job's process
// tree has a context (the last ones it had, while it has none), else all.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/watcher.h"
#include "gpu/snapshot.h"

namespace lull {

class ScopeFinder {
 public:
  using IsOurs = std::function<bool(pid_t)>;  // a process of the job

  // `is_ours` null: there is no job, contexts say nothing.
  ScopeFinder(std::string gpus, std::optional<std::string> cuda_visible_devices,
              std::optional<std::string> cuda_device_order, IsOurs is_ours);

  const Scope& find(const Snapshot& snapshot);
  bool needs_tenants() const { return gpus_.empty() && !visible_ && is_ours_; }
  // --gpus that names what is not there, or what hides GPUs; empty: nothing to say.
  const std::string& trouble() const { return trouble_; }
  const std::string& note() const { return note_; }

 private:
  void resolve(const Inventory& inventory);
  void use_contexts(const Snapshot& snapshot);

  std::string gpus_;
  std::optional<std::string> visible_;
  std::optional<std::string> order_;
  IsOurs is_ours_;
  std::shared_ptr<const Inventory> inventory_;
  std::vector<std::vector<pid_t>> pids_;  // of each device, when they were last looked at
  std::vector<std::string> contexts_;     // UUIDs of the devices the job last had a context on
  Scope all_;
  Scope scope_;
  std::string trouble_;
  std::string note_;
};

}  // namespace lull
