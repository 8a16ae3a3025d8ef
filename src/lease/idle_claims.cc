#include "lease/idle_claims.h"

#include <algorithm>

namespace lull {

namespace {

// A waiter whose turn it is takes its GPU in milliseconds. One that has not by
// now is stopped or stuck, and those behind it need not be.
constexpr Duration kGrace = std::chrono::seconds(5);
constexpr Duration kLongestGrace = std::chrono::seconds(60);  // whoever speaks for it
// No look counts for more than this.
constexpr Duration kStep = std::chrono::seconds(1);

}  // namespace

std::set<std::string> IdleClaims::look(std::span<const Claim> claims,
                                       const std::function<bool(const std::string&)>& still_queues, Instant now) {
  due_.reset();
  std::set<std::string> free;
  std::set<std::string> too_long;
  for (const Claim& claim : claims) {
    free.insert(claim.uuid);
    Idle& idle = idle_.try_emplace(claim.uuid, Idle{.seen = now, .speaker = claim.speaker}).first->second;
    const Duration step = std::min<Duration>(now - idle.seen, kStep);
    idle.seen = now;
    idle.in_all += step;
    idle.for_speaker += step;
    if (idle.speaker != claim.speaker && !still_queues(idle.speaker)) idle.for_speaker = {};
    idle.speaker = claim.speaker;
    const Duration left = std::min(kGrace - idle.for_speaker, kLongestGrace - idle.in_all);
    if (left <= Duration::zero())
      too_long.insert(claim.uuid);
    else
      due_ = std::min(due_.value_or(Instant::max()), now + std::min(left, kStep));
  }
  std::erase_if(idle_, [&](const auto& entry) { return !free.contains(entry.first); });
  return too_long;
}

}  // namespace lull
