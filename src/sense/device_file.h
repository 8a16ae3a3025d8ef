#pragma once
// What tells one device file from another, however it was reached: its device number, so that a container's own node of
// the same device is the same; in a simulation, where device files are plain files, file system and inode.

#include <cstdint>
#include <optional>

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

}  // namespace lull
