#include "sense/device_file.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace lull {

std::optional<FileId> file_id(int dir, const char* path) {
  struct statx info{};
  if (::statx(dir, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &info) != 0) return std::nullopt;
  if (S_ISCHR(info.stx_mode)) return FileId{true, info.stx_rdev_major, info.stx_rdev_minor, 0};
  if (S_ISREG(info.stx_mode)) return FileId{false, info.stx_dev_major, info.stx_dev_minor, info.stx_ino};
  return std::nullopt;
}

}  // namespace lull
