#pragma once
// Fd owns one file descriptor. Every descriptor in this program has one owner.

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"

namespace lull {

class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }
  void reset() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// O_CLOEXEC is always added. `dir` may be AT_FDCWD.
Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode = 0);
inline Result<Fd> open_file(const std::string& path, int flags, mode_t mode = 0) {
  return open_at(AT_FDCWD, path, flags, mode);
}

// The whole file, or as much as `limit` bytes of it (files of /proc have no size).
Result<std::string> read_file(int dir, const std::string& path, std::size_t limit = 64U << 20);
inline Result<std::string> read_file(const std::string& path) { return read_file(AT_FDCWD, path); }

// The beginning of a file that is open, whatever its offset is; empty where it cannot be read.
std::string read_beginning(int fd, std::size_t most);

// The folder that a file is in, by its path.
std::string folder_of(const std::string& path);

// The names in a folder.
class Directory {
 public:
  Directory() = default;
  explicit Directory(const std::string& path);
  explicit Directory(int folder);                                    // that is open already, from its beginning
  explicit Directory(Fd folder) : fd_(std::move(folder)) {}          // goes on where it stands
  explicit operator bool() const { return static_cast<bool>(fd_); }  // false: errno says why
  int fd() const { return fd_.get(); }
  // Null at the end, where the folder could not be opened, and where it cannot be read on: only then it sets errno.
  // Without hidden names, which begin with a dot; with `hidden` all but "." and "..".
  const char* next(bool hidden = false);
  int error() const { return error_; }  // why it could not be opened or read on: there may be more names; 0: neither

 private:
  static constexpr std::size_t kBuffer = 16U << 10;
  Fd fd_;
  std::unique_ptr<std::byte[]> buffer_;  // of entries as getdents(2) gives them: opendir(3) would cost more calls
  std::size_t filled_ = 0;
  std::size_t at_ = 0;
  int error_ = 0;
};

// Writes everything or says why not; carries on after EINTR and short writes.
Result<> write_all(int fd, std::string_view bytes);

// A variable of our environment; nothing where it is not set.
std::optional<std::string> environment_variable(const char* name);

// The machine as a sensor may see it. Tests hand it a folder with fixtures in it.
struct Root {
  std::string proc = "/proc";
  std::string sys = "/sys";
  std::string dev = "/dev";
  std::string driver =
      "/proc/driver/nvidia";  // the kernel driver's own folder, there while it is loaded; empty: it has none

  // The real machine. In a simulation ($LULL_SIM) sys and driver are that folder's, whether it has them or not: a
  // simulation that has ended has no GPU of this machine. Device files are looked for under $LULL_DEV where it is set.
  // Processes are always real.
  static Root machine();
};

}  // namespace lull
