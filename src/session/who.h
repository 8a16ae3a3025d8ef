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
