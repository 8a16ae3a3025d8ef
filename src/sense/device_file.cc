#include "sense/device_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <string_view>

#include "base/text.h"

namespace lull {
namespace {

bool may_open(const std::string& path, int mode) {
  return ::access(path.c_str(), mode) == 0 || (errno != EACCES && errno != EPERM && errno != ENOENT);
}

// A capability of the driver's, such as "gpu0/mig/gi1/access": it names the device file that opens what it is for. CUDA
// goes by it too, so what has none is not open to anybody here.
bool has_capability(const Root& root, const std::string& name) {
  const auto text = read_file(AT_FDCWD, root.driver + "/capabilities/" + name, 4096);
  if (!text) return text.error().errno_value != EACCES && text.error().errno_value != ENOENT;
  constexpr std::string_view kMinor = "DeviceFileMinor:";
  for (const std::string_view line : split(*text, '\n'))
    if (const auto minor = line.starts_with(kMinor) ? to_unsigned(trim(line.substr(kMinor.size()))) : std::nullopt)
      return may_open(root.dev + "/nvidia-caps/nvidia-cap" + std::to_string(*minor), R_OK);
  return true;
}

bool part_open_to_us(const Device& part, const Root& root) {
  if (!part.minor || !part.gpu_instance || !part.compute_instance) return true;
  const std::string instance = "gpu" + std::to_string(*part.minor) + "/mig/gi" + std::to_string(*part.gpu_instance);
  return has_capability(root, instance + "/access") &&
         has_capability(root, instance + "/ci" + std::to_string(*part.compute_instance) + "/access");
}

}  // namespace

std::optional<FileId> file_id(int dir, const char* path) {
  struct statx info{};
  if (::statx(dir, path, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_TYPE | STATX_INO, &info) != 0) return std::nullopt;
  if (S_ISCHR(info.stx_mode)) return FileId{true, info.stx_rdev_major, info.stx_rdev_minor, 0};
  if (S_ISREG(info.stx_mode)) return FileId{false, info.stx_dev_major, info.stx_dev_minor, info.stx_ino};
  return std::nullopt;
}

bool open_to_us(const Inventory& inventory, std::size_t device, const Root& root) {
  constexpr std::string_view kPrefix = "nvidia";
  const Device& it = inventory.devices[device];
  if (it.kind == DeviceKind::mig) return part_open_to_us(it, root);
  const auto file = [&](std::uint64_t number) {
    return root.dev + "/" + std::string(kPrefix) + std::to_string(number);
  };
  if (it.minor) return may_open(file(*it.minor), R_OK | W_OK);
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(root.dev.c_str()), ::closedir);
  if (!folder) return errno != ENOENT;
  while (const dirent* entry = ::readdir(folder.get())) {
    const std::string_view name = entry->d_name;
    const auto number = name.starts_with(kPrefix) ? to_unsigned(name.substr(kPrefix.size())) : std::nullopt;
    const bool anothers = number && std::ranges::any_of(inventory.devices, [&](const Device& other) {
                            return other.minor && *other.minor == *number;
                          });
    if (number && !anothers && may_open(file(*number), R_OK | W_OK)) return true;
  }
  return false;
}

}  // namespace lull
