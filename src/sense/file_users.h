#pragma once
// Who uses a GPU that is read from files: its KFD processes (AMD) and its DRM clients, in one list, each proven or not
// (proof.h). For the sources of AMD and Intel; one for each GPU, used by one thread at a time.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "gpu/snapshot.h"
#include "sense/drm_clients.h"
#include "sense/proof.h"
#include "sense/source.h"

namespace lull {

class FileUsers {
 public:
  // `clients` is one for all GPUs. `module`: the kernel module that is the GPU's driver; empty: not known.
  FileUsers(Root root, std::shared_ptr<DrmClients> clients, std::string module)
      : root_(std::move(root)), clients_(std::move(clients)), module_(std::move(module)) {}

  // Sets `processes`, `processes_hidden` and `procs`. `kfd_gpu`: KFD's gpu_id; nothing: KFD does not know it. An answer
  // serves for needs.lists_every. To be called after all else is read.
  //
  // KFD lists the compute processes of all users. DRM clients are known only where every process can be looked at: an
  // AMD GPU without that still has its compute processes (`procs` is then unknown with needs.all_clients), an Intel GPU
  // has then no list that is complete.
  void sample(const Device& device, std::optional<std::uint32_t> kfd_gpu, const Needs& needs, Instant now,
              Reading& reading);

 private:
  // Which process holds which device is one answer for all GPUs of a sample.
  static constexpr Duration kHoldersServe = std::chrono::milliseconds(500);
  void list(const Device& device, std::optional<std::uint32_t> kfd_gpu, const Needs& needs, Instant now,
            const Reading& reading);
  bool explain(const Reading& reading) const;

  Root root_;
  std::shared_ptr<DrmClients> clients_;
  std::string module_;
  ProcessProofs proofs_;
  std::optional<Instant> at_;
  std::vector<GpuProcess> processes_;
  Absence absence_ = Absence::none;  // other than none: there is no list
  Absence missing_ = Absence::none;  // other than none: there may be more than are listed
  bool hidden_ = false;              // pids are not of our namespace
};

}  // namespace lull
