#pragma once
// File systems of a simulation that a small process of ours serves through FUSE: how
// they are mounted, how that process is started and ended.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace lull::sim {

struct FuseService {
  std::string name;                 // of the process
  std::string purpose;              // "a hang in D state": what cannot be had without FUSE
  std::vector<std::string> points;  // where it is mounted
  // In the process: until `owner` becomes readable (its process has ended) or the mounts are gone. It writes a byte to
  // `ready`, and closes it, once it answers.
  std::function<void(std::span<const int> fuse, int owner, int ready)> serve;
};

// Mounts, and serves from a child process. `orphan`: from a detached process, which ends with `owner`. An error
// says what is missing: /dev/fuse, or the right to mount.
Result<pid_t> start_fuse(const FuseService& service, pid_t owner, bool orphan);

// Takes a mount away that is there or was left behind; nothing, if there is none.
void unmount_fuse(const std::string& point);

// The child process of start_fuse(), until this is destroyed; whoever waits for an answer is let go then. `unmount`
// takes its mounts away.
class FuseServer {
 public:
  FuseServer(pid_t pid, std::function<void()> unmount);
  FuseServer(const FuseServer&) = delete;
  FuseServer& operator=(const FuseServer&) = delete;
  FuseServer(FuseServer&& other) noexcept;
  FuseServer& operator=(FuseServer&&) = delete;
  ~FuseServer();

  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
  std::function<void()> unmount_;
  pid_t owner_;
};

// Answers a request: an errno, or data.
void answer_fuse(int fuse, std::uint64_t unique, int error, const void* data = nullptr, std::size_t size = 0);
template <class T>
void answer_fuse_with(int fuse, std::uint64_t unique, const T& data) {
  answer_fuse(fuse, unique, 0, &data, sizeof data);
}
// To FUSE_INIT, whose content `body` is. The kernel keeps links as long as their attributes.
void answer_fuse_init(int fuse, std::uint64_t unique, const char* body);

}  // namespace lull::sim
