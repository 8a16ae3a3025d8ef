#pragma once
// Starting a program beside a process that has threads and children of its own, Python for one. Between the clone and
// the exec nothing is done but system calls, since another thread may hold any lock there is. What is started is no
// child of ours: no wait() finds it, and no SIGCHLD comes of it.

#include <span>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/result.h"

namespace lull {

struct Beside {
  std::string program;                   // its path
  std::vector<std::string> arguments;    // with argv[0]
  std::vector<std::string> environment;  // "NAME=value": as it was when it was safe to look
};

// It has our standard descriptors and, from 3 on, `descriptors`; no other. Fails with exec's own errno.
Result<Process> start_beside(const Beside& what, std::span<const int> descriptors);

}  // namespace lull
