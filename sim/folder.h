#pragma once
// The folder of one simulation ($LULL_SIM): the state that clients map, the
// device files that stand for /dev/nvidiaN, the leases. It belongs to the
// `lull sim` that made it, which holds a lock on it as long as it lives; one
// that was killed leaves a folder without a lock, and the next one sweeps it.

#include <cstddef>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace lull::sim {

class Folder {
 public:
  // A fresh private folder under `base`, with device files for `gpus` GPUs of NVIDIA.
  static Result<Folder> create(const std::string& base, std::size_t gpus);

  Folder(Folder&& other) noexcept;
  Folder& operator=(Folder&&) = delete;
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();  // everything in it is gone, too; only in the process that made it

  const std::string& path() const { return path_; }
  std::string dev() const { return path_ + "/dev"; }
  std::string leases() const { return path_ + "/leases"; }

 private:
  Folder(std::string path, Fd lock);

  std::string path_;
  Fd lock_;
  pid_t owner_;
};

// Where folders are made: $XDG_RUNTIME_DIR where it is a folder, else $TMPDIR, else /tmp.
std::string folder_base();

// Removes the folders of simulations under `base` whose lull sim is gone. Returns how many.
std::size_t sweep(const std::string& base);

// The device file of one GPU: FOLDER/dev/nvidia3.
std::string device_file(const std::string& folder, std::size_t gpu);

}  // namespace lull::sim
