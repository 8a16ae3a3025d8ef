#pragma once
// What AMD's compute driver (KFD) tells in /sys/class/kfd/kfd: which GPUs there are in the order that ROCm counts them
// (topology/nodes), and which processes have memory or queues on one (proc/PID). All of it is files; nothing is opened
// that would wake a card. `sdma_*` of a process is never read: the kernel answers it from a worker that may block.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

// A GPU, or a partition of one, as KFD knows it.
struct KfdNode {
  unsigned node = 0;  // N of topology/nodes/N
  std::uint32_t gpu_id = 0;
  std::uint64_t unique_id = 0;           // 0: it has none
  std::uint32_t simd_count = 0;          // 0: ROCm does not count it
  std::uint32_t location_id = 0;         // bus, device, function; partitions differ in the function
  std::uint32_t domain = 0;              // of PCI
  std::uint64_t gfx_target_version = 0;  // of the architecture, 90402; 0: not told
  bool has_cpu = false;                  // an APU
  std::optional<unsigned> render_minor;  // N of /dev/dri/renderDN
  // The place in the order that ROCR_VISIBLE_DEVICES counts in. Nothing: ROCm does not see it, or the order is not
  // known (KfdTopology::order_known).
  std::optional<unsigned> rank;
  bool partition = false;  // others have the same unique_id
  bool operator==(const KfdNode&) const = default;

  std::string pci() const;   // "00000000:65:00.0", the function left out of partitions
  std::string uuid() const;  // "GPU-5d1f000000000065", as ROCm names it; empty: it has none
};

struct KfdTopology {
  Absence absence = Absence::none;  // no_driver: there is no KFD here; failed: it cannot be read
  std::vector<KfdNode> gpus;        // in the order of the nodes; those outside our device cgroup (EPERM) are left out
  bool order_known = true;          // a node that could not be read may be any of them: then no node has a rank
  // Other than none: nodes were left out or could not be read, and may be of any card that has none here.
  Absence unseen = Absence::none;

  // Null: KFD does not know it.
  const KfdNode* with_render_minor(unsigned minor) const;
};
KfdTopology read_kfd_topology(const Root& root);

// The topology for all GPUs of a source, which are identified at about the same time, each by a thread of its own.
class SharedKfdTopology {
 public:
  SharedKfdTopology(Root root, const Clock& clock) : root_(std::move(root)), clock_(clock) {}
  KfdTopology read();

 private:
  static constexpr Duration kStands = std::chrono::seconds(1);
  Root root_;
  const Clock& clock_;
  std::mutex mutex_;
  std::optional<KfdTopology> topology_;
  Instant at_{};
};

// Who has memory or a queue on a GPU. The pids are those of the first pid namespace; who that is here, and whether it
// is proven, ProcessProofs (proof.h) says.
struct KfdUsers {
  Absence absence = Absence::none;    // other than none: not all could be read, and there may be more
  std::vector<GpuProcess> processes;  // one for each pid, unproven
};
KfdUsers read_kfd_users(const Root& root, std::uint32_t gpu_id);
// Whether KFD knows a process of this number. It tells then on which GPUs that one is; its open files do not, since
// ROCm opens the render nodes of all GPUs.
bool is_kfd_process(const Root& root, pid_t pid);

}  // namespace lull
