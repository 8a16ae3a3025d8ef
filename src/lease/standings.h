#pragma once
// Who may take which GPU, as a pure function of what is in the lease folder: how each GPU
// stands for one who asks, and who else is in line for it (docs/leases.md).

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lease/folder.h"

namespace lull {

// What the newest reading says of a GPU on which no leased job works.
enum class Fit : std::uint8_t { unknown, yes, no };

struct Candidate {
  std::string uuid;
  std::string label;  // for the record
  Fit fit = Fit::unknown;
  Fit company = Fit::unknown;  // the same, for one who would share it with those who hold it
};

// How one GPU stands for one who asks.
struct Standing {
  enum State : std::uint8_t {
    free,        // nobody has it
    shared,      // others have it, and we may be one of them
    ours,        // we keep it already
    collecting,  // a waiter keeps it until it has enough
    leased,      // somebody works with it
  } state = free;
  unsigned holders = 0;              // other than us
  unsigned patience = kMostHolders;  // so many holders each of them lives with
  // Both point into the state that was looked at.
  const LeaseInfo* by = nullptr;           // shared, collecting, leased
  const TicketInfo* spoken_for = nullptr;  // a waiter ahead of us wants it

  bool open() const { return (state == free || state == shared) && spoken_for == nullptr; }
  // There is room for the one who is ahead of us, now.
  bool claimable() const {
    return spoken_for != nullptr && (state == free || (state == shared && room_for(spoken_for->record.share)));
  }
  // For one more who lives with this many in all.
  bool room_for(unsigned share) const { return holders + 1 <= std::min(share, patience); }
};

// A claim that was not made use of for too long: (ticket file, UUID).
using PassedOver = std::set<std::pair<std::string, std::string>>;

// Leases that are not in the way of one who is inside lease `within`: that one and those around it. Only
// leases of that user: everybody can read another's id, and write it into a file.
std::set<std::string> around(const std::string& within, const FolderState& state, uid_t user);

std::vector<Standing> standings(const FolderState& state, std::span<const Candidate> candidates, const Place& place,
                                const std::string& within, const std::set<std::string>& our_files,
                                const PassedOver& passed_over);

bool wants(const TicketRecord& ticket, const std::string& uuid);
// It is ahead of us in the same line, and may take GPUs before we do.
bool goes_before(const TicketInfo& ticket, const Place& place, const std::string& within);

}  // namespace lull
