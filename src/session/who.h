#pragma once
// Who has a GPU now, as a trace tells it: the processes with a context on it, their
// users and what they run, the lease, and the job where that has a name.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "gpu/snapshot.h"
#include "trace/rows.h"

namespace lull {

// What a process runs in a few words: "python train.py", "torchrun train.py". Not its arguments: they tell a recording
// nothing, and may hold what is nobody's business.
std::string short_command(const std::vector<std::string>& arguments, std::string_view name);

class WhoFinder {
 public:
  WhoFinder();
  // Looks at the leases, at most once a second.
  void look(Instant at);
  trace::Who find(const Snapshot& snapshot, std::size_t device) const;
  const std::string& host() const { return host_; }

 private:
  struct Lease {
    std::string id;
    std::string user;
  };
  std::string host_;
  std::map<std::string, Lease> leases_;  // by UUID
  Instant looked_ = Instant::min();
};

}  // namespace lull
