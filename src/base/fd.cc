#include "base/fd.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace lull {

Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode) {
  int fd = -1;
  do {
    fd = ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return fail(errno, "open " + path);
  return Fd(fd);
}

Result<std::string> read_file(int dir, const std::string& path, std::size_t limit) {
  const Fd fd = TRY(open_at(dir, path, O_RDONLY));
  std::string bytes;
  std::size_t used = 0;
  while (used < limit) {
    bytes.resize(std::min(limit, std::max<std::size_t>(4096, used * 2)));
    const ssize_t got = ::read(fd.get(), bytes.data() + used, bytes.size() - used);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail(errno, "read " + path);
    if (got == 0) break;
    used += static_cast<std::size_t>(got);
  }
  bytes.resize(used);
  return bytes;
}

Result<> write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = ::write(fd, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return fail(errno, "write");
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Root Root::machine() {
  Root root;
  if (const char* sim = std::getenv("LULL_SIM"); sim != nullptr && *sim != '\0') {
    const std::string folder = sim;
    if (::access((folder + "/sys").c_str(), F_OK) == 0) root.sys = folder + "/sys";
    root.driver = ::access((folder + "/proc").c_str(), F_OK) == 0 ? folder + "/proc/driver/nvidia" : "";
  }
  if (const char* dev = std::getenv("LULL_DEV"); dev != nullptr && *dev != '\0') root.dev = dev;
  return root;
}

}  // namespace lull
