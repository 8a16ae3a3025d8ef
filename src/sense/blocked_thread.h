#pragma once
// Whether a thread is blocked in one place of the kernel, where no signal reaches it: it sleeps uninterruptibly, and
// its counts of context switches stay the same. A driver that wakes a card lets its thread run now and then.

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace lull {

class BlockedThread {
 public:
  // Reads its state, now and then.
  void look(pid_t process, pid_t thread, Instant at);
  // Of all that was read, nothing says that it ran in this time.
  bool blocked_for(Duration time, Instant at) const { return since_ && at - *since_ >= time; }

 private:
  std::uint64_t switches_ = 0;
  std::optional<Instant> since_;
};

}  // namespace lull
