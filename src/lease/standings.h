#pragma once
// Who may take which GPU, as a pure function of what is in the lease folder: how each GPU
// stands for one who asks, and who else is in line for it (docs/leases.md).

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "lease/folder.h"

namespace lull {

// What the newest reading says of a GPU on which no leased job works.
enum class Fit : std::uint8_t { unknown, yes, no };

struct Candidate {
  std::string uuid;   // by which it is leased; its PCI address where several GPUs have the same UUID
  std::string label;  // for the record
  Fit fit = Fit::unknown;
  Fit company = Fit::unknown;           // the same, for one who would share it with those who hold it
  std::vector<std::string> names = {};  // others may know it by

  bool is(const std::string& name) const { return name == uuid || std::ranges::find(names, name) != names.end(); }
};

// How one GPU stands for one who asks.
struct Standing {
  enum State : std::uint8_t {
    free,        // without a lease
    shared,      // others have it, and we may be one of them
    ours,        // we keep it already
    collecting,  // a waiter keeps it until it has enough
    leased,      // in use
  } state = free;
  unsigned holders = 0;              // other than us
  unsigned patience = kMostHolders;  // so many holders each of them lives with
  // Both point into the state that was looked at.
  const LeaseInfo* by = nullptr;           // shared, collecting, leased
  const TicketInfo* spoken_for = nullptr;  // a waiter ahead of us wants it

  bool open() const { return (state == free || state == shared) && spoken_for == nullptr; }
  // There is room for the one who is ahead of us, now.
  bool claimable() const {
    return spoken_for != nullptr && (state == free || (state == shared && space_for(spoken_for->record.share)));
  }
  // For one more who lives with this many in all.
  bool space_for(unsigned share) const { return holders + 1 <= std::min(share, patience); }
};

// A claim that was not made use of for too long: (ticket file, UUID).
using PassedOver = std::set<std::pair<std::string, std::string>>;

// Leases that do not block a process inside lease `within`: that one and those around it. Only leases of that user: all
// users can read another's id, and write it into a file.
std::set<std::string> around(const std::string& within, const FolderState& state, uid_t user);

std::vector<Standing> standings(const FolderState& state, std::span<const Candidate> candidates, const Place& place,
                                const std::string& within, const std::set<std::string>& our_files,
                                const PassedOver& passed_over);

bool wants(const TicketRecord& ticket, const Candidate& candidate);
// It is ahead of us in the same line, and may take GPUs before we do.
bool goes_before(const TicketInfo& ticket, const Place& place, const std::string& within);

// GPUs that are free, and claimed by a waiter that does not take them: it is stopped, stuck, or in a hung call. Those
// behind need not wait for it without end. Only time in which we looked counts: after a pause of ours, or of the whole
// machine, the one ahead has had no more of it than we had.
class IdleClaims {
 public:
  struct Claim {
    std::string uuid;    // free
    std::string ticket;  // the first ticket in line for it
  };
  // One look at all there are. Gives the UUIDs of those who lay idle for too long.
  std::set<std::string> look(std::span<const Claim> claims, const std::function<bool(const std::string&)>& still_queues,
                             Instant now);
  // When to look again: unless something happens before.
  std::optional<Instant> due() const { return due_; }

 private:
  // The time runs for the GPU: rewriting a ticket does not restart it. While one after the other is served the queue
  // moves, and the time restarts; but not without end, as long as the GPU is not taken.
  struct Idle {
    Instant seen;
    Duration in_all{};
    Duration for_ticket{};
    std::string ticket;
  };
  std::map<std::string, Idle> idle_;  // by UUID
  std::optional<Instant> due_;
};

}  // namespace lull
