#pragma once
// GPUs that are free, and spoken for by somebody who does not come to get them: one who is stopped, stuck, or in a hung
// call. Those behind need not wait for that for ever. Only time in which we looked counts: after a pause of ours, or of
// the whole machine, the one ahead has had no more of it than we had.

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>

#include "base/clock.h"

namespace lull {

class IdleClaims {
 public:
  struct Claim {
    std::string uuid;     // free
    std::string speaker;  // the first ticket in line for it
  };
  // One look at all there are. Gives the UUIDs of those who lay idle for too long.
  std::set<std::string> look(std::span<const Claim> claims, const std::function<bool(const std::string&)>& still_queues,
                             Instant now);
  // When to look again: unless something happens before.
  std::optional<Instant> due() const { return due_; }

 private:
  // The time runs for the GPU: writing a ticket anew does not begin it anew. While one after the other is served the
  // queue moves, and it does; but not for ever, as long as nobody takes the GPU.
  struct Idle {
    Instant seen;
    Duration in_all{};
    Duration for_speaker{};
    std::string speaker;
  };
  std::map<std::string, Idle> idle_;  // by UUID
  std::optional<Instant> due_;
};

}  // namespace lull
