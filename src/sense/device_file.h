#pragma once
// What tells one device file from another, however it was reached: its device number, so that a container's own node of
// the same device is the same; in a simulation, where device files are plain files, file system and inode.

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/fd.h"
#include "gpu/snapshot.h"

namespace lull {

struct FileId {
  bool device = false;
  unsigned major = 0;
  unsigned minor = 0;
  std::uint64_t inode = 0;
  bool operator==(const FileId&) const = default;
};

// Never waits for a network file system: what is cached will do, a device node is local.
std::optional<FileId> file_id(int dir, const char* path);

// Whether programs of ours may open this device (a place in the inventory), and so could be at work there: what
// access(2) says of its file, which asks file modes, the control group's list of devices and security modules, and
// opens nothing. Where its number is not known, any file that is no other device's may be its own. Of a MIG device it
// is the files of its capabilities that count. What cannot be found out is a yes.
bool open_to_us(const Inventory& inventory, std::size_t device, const Root& root = {});

}  // namespace lull
