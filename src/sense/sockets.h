#pragma once
// Bytes that go over the sockets of a job's processes. What send() and recv() move is in no
// account of /proc/PID/io, so a job that only talks over the network would look as if it read
// and wrote nothing. TCP is counted by the kernel for each socket (sock_diag, by inode); of
// anything else that is connected (UDP, unix sockets to other processes, another network
// namespace) nobody counts the bytes, and the answer says so instead of 0.
//
// What goes through an io_uring is in no account either, whatever it is that it reads and writes.
//
// A connection that was opened and closed between two samples is not seen.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace lull {

struct SocketTraffic {
  double received = 0;    // bytes since the sample before
  double sent = 0;        // and were acknowledged
  bool counted = true;    // no: there is more, nobody knows how much
  std::string uncounted;  // what it is, for a person; empty where it only was a connection that has been closed since
};

class SocketCounter {
 public:
  explicit SocketCounter(Root root = {}) : root_(std::move(root)) {}

  SocketTraffic sample(std::span<const pid_t> processes);
  void reset() { before_.clear(); }

  using Inode = std::uint64_t;
  struct Bytes {
    std::uint64_t received = 0;
    std::uint64_t sent = 0;
  };

 private:
  Root root_;
  std::map<Inode, Bytes> before_;  // of each TCP socket
};

}  // namespace lull
