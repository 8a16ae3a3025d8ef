#include "base/fd.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace lull {

// A signal may interrupt an open, and another one the next try. What is always interrupted is broken, and an error.
Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode) {
  constexpr int kMostTries = 100;
  int fd = -1;
  int tries = 0;
  do {
    fd = ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR && ++tries < kMostTries);
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

std::string read_beginning(int fd, std::size_t most) {
  struct stat status{};
  if (::fstat(fd, &status) != 0) return {};
  std::string text(std::min(most, static_cast<std::size_t>(std::max<off_t>(status.st_size, 0))), '\0');
  std::size_t got = 0;
  while (got < text.size()) {
    const ssize_t more = ::pread(fd, text.data() + got, text.size() - got, static_cast<off_t>(got));
    if (more <= 0) break;
    got += static_cast<std::size_t>(more);
  }
  text.resize(got);
  return text;
}

std::string folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
}

Directory::Directory(const std::string& path)
    : fd_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC)), error_(fd_ ? 0 : errno) {}

Directory::Directory(int folder)
    : fd_(::openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), error_(fd_ ? 0 : errno) {}

const char* Directory::next(bool hidden) {
  while (fd_) {
    if (at_ >= filled_) {
      if (!buffer_) buffer_ = std::make_unique_for_overwrite<std::byte[]>(kBuffer);
      const ssize_t got = ::getdents64(fd_.get(), buffer_.get(), kBuffer);
      if (got < 0) error_ = errno;
      if (got <= 0) return nullptr;
      filled_ = static_cast<std::size_t>(got);
      at_ = 0;
    }
    const auto* entry = reinterpret_cast<const dirent64*>(buffer_.get() + at_);
    at_ += entry->d_reclen;
    const std::string_view name = entry->d_name;
    if (!name.starts_with('.') || (hidden && name != "." && name != "..")) return entry->d_name;
  }
  return nullptr;
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

std::optional<std::string> environment_variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

Root Root::machine() {
  Root root;
  if (const std::string sim = environment_variable("LULL_SIM").value_or(""); !sim.empty()) {
    root.sys = sim + "/sys";
    root.driver = ::access((sim + "/proc").c_str(), F_OK) == 0 ? sim + "/proc/driver/nvidia" : "";
  }
  if (const std::string dev = environment_variable("LULL_DEV").value_or(""); !dev.empty()) root.dev = dev;
  return root;
}

}  // namespace lull
