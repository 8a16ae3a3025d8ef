#pragma once
// Sleeping for a LeaseQueue in tests whose processes have nothing else to wait for.

#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "lease/queue.h"

namespace lull {

inline const SystemClock kTestClock;

inline Result<> wait_for_test(LeaseQueue& queue, std::optional<Instant> until = {}) {
  const Sleep sleep = queue.sleep(until);
  std::vector<pollfd> sources;
  for (const int event : sleep.events) sources.push_back({event, POLLIN, 0});
  timespec patience{};
  if (sleep.until) {
    const Duration left = std::max<Duration>(*sleep.until - kTestClock.now(), Duration::zero());
    patience.tv_sec = std::chrono::floor<std::chrono::seconds>(left).count();
    patience.tv_nsec = (left % std::chrono::seconds(1)).count();
  }
  (void)::ppoll(sources.data(), sources.size(), sleep.until ? &patience : nullptr, nullptr);
  return queue.woken();
}

}  // namespace lull
