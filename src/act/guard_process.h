#pragma once
// The process between us and a filler (guard.h): what it does, and the words that pass between it and us.

#include <cstdint>

#include "act/guard.h"

namespace lull {

// One packet each, in both directions.
struct GuardWord {
  enum Kind : std::int32_t {
    // to the guard
    halt,   // a: 1 where its cgroup has been frozen, b: the number of this word
    go_on,  // a: 1 where its cgroup has been thawed
    end,    // a: signal, time: grace in ns
    // from the guard
    started,  // a: pid of the command
    refused,  // a: errno
    still,    // a: 1 where all are seen to stand still (0: not any more), b: since which word
    stuck,    // SIGKILL does not end somebody; it is tried again and again
    gone,     // a: exit code, b: signal, c: killed
  };
  std::int32_t kind = halt;
  std::int32_t a = 0;
  std::int32_t b = 0;
  std::int32_t c = 0;
  std::int64_t time = 0;
};

struct GuardTask {
  const GuardOptions& options;
  Cgroup& cgroup;
  int socket = -1;
};

// Never returns. To be called in a fresh child of a program without threads.
[[noreturn]] void be_guard(const GuardTask& task);

}  // namespace lull
