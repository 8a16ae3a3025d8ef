#pragma once
// Bytes that go over the sockets of a job's processes: /proc/PID/io does not count what send() and recv() move. The
// kernel counts TCP for each socket (sock_diag, by inode). Of anything else that is connected (UDP, unix sockets to
// other processes, another network namespace) and of an io_uring the bytes are not counted, and the answer says so.
//
// What splice() moves between pipes leaves no trace at all: a process with a pipe to others that is not a standard
// stream, or with pipes to others as standard input and output both, makes the answer unknown whenever it has run. A
// job whose output alone goes into a pipe (`… | tee log`) uses write(), which is counted. A connection that was opened
// and closed between two samples is not seen.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "base/fd.h"

namespace lull {

struct SocketTraffic {
  double received = 0;    // bytes since the sample before
  double sent = 0;        // and were acknowledged
  bool counted = true;    // no: there is more, it is unknown how much
  std::string uncounted;  // what it is, for a person; empty where it only was a connection that has been closed since
};

// A pipe between us and a helper of ours: where we are the job ourselves (Python), it is none of its own.
void ignore_pipe(int fd);

class SocketCounter {
 public:
  explicit SocketCounter(Root root = {}) : root_(std::move(root)) {}

  SocketTraffic sample(std::span<const pid_t> processes);
  void reset() {
    before_.clear();
    runs_.clear();
    sampled_ = false;
  }

  using Inode = std::uint64_t;
  struct Bytes {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
  };

 private:
  bool has_run(pid_t pid);

  Root root_;
  std::map<Inode, Bytes> before_;        // of each TCP socket
  std::map<pid_t, std::uint64_t> runs_;  // how often who might splice() has run
  bool sampled_ = false;
};

}  // namespace lull
