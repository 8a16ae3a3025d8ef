#pragma once
// Who may take which GPU, and the queue of those who wait. The rules are a pure
// function of what is in the folder (standings()); LeaseQueue applies them: it
// takes and gives back under the folder's door, keeps the waiter's ticket up to
// date and sleeps until something in the folder changes. It knows nothing of
// utilisation: the caller says which GPUs are fit (docs/leases.md).

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
#include "base/fd.h"
#include "base/result.h"
#include "lease/folder.h"

namespace lull {

// What the newest reading says of a GPU on which no leased job works.
enum class Fit : std::uint8_t { unknown, yes, no };

struct Candidate {
  std::string uuid;
  std::string label;  // for the record
  Fit fit = Fit::unknown;
};

struct Demand {
  unsigned count = 1;
  int priority = 0;
  std::string within;   // narrows a lease: its id
  LeaseRecord pattern;  // who, what: the rest of each record is filled in
};

// How one GPU stands for one who asks.
struct Standing {
  enum State : std::uint8_t {
    free,        // nobody has it
    ours,        // we keep it already
    collecting,  // a waiter keeps it until it has enough
    leased,      // somebody works with it
  } state = free;
  // Both point into the state that was looked at.
  const LeaseInfo* by = nullptr;           // collecting, leased
  const TicketInfo* spoken_for = nullptr;  // a waiter ahead of us wants it
};

struct Place {
  int priority = 0;
  std::uint64_t number = UINT64_MAX;  // of those who do not queue: behind all of their priority
  std::string ticket;                 // our own file, if we have one
  uid_t user = 0;
  std::int64_t born = 0;
  Turn turn() const { return {priority, born, number}; }
};

// A claim that was not made use of for too long: (ticket file, UUID).
using PassedOver = std::set<std::pair<std::string, std::string>>;

// Leases that are not in the way of one who is inside lease `within`: that one and those around it. Only
// leases of that user: everybody can read another's id, and write it into a file.
std::set<std::string> around(const std::string& within, const FolderState& state, uid_t user);

std::vector<Standing> standings(const FolderState& state, std::span<const Candidate> candidates, const Place& place,
                                const std::string& within, const std::set<std::string>& our_files,
                                const PassedOver& passed_over);

// Of `open` (indices of candidates that may be taken) choose `count`, given those we keep already.
using Chooser = std::function<std::vector<std::size_t>(std::span<const std::size_t> open,
                                                       std::span<const std::size_t> kept, std::size_t count)>;

class LeaseQueue {
 public:
  LeaseQueue(const LeaseFolder& folder, Demand demand, std::vector<Candidate> candidates);

  std::span<Candidate> candidates() { return candidates_; }

  // As of about now, without the door. After wait() only what changed is read again.
  // What it points to is good until the next call of anything here.
  Result<std::vector<Standing>> look();

  // All or nothing, for those who do not queue: true if all were taken.
  Result<bool> take_now(const Chooser& choose);

  // One turn of a waiter: joins the queue if it is not in it, gives up what those
  // ahead want, takes what is free, fit and not spoken for. True: all collected.
  // While the GPUs that can be had at all are too few, it keeps nothing from others.
  Result<bool> turn(const Chooser& choose);

  // What a second look showed to be in use after all.
  Result<> give_back(std::span<const std::size_t> indices);

  // Sleeps until the folder changes, `until` comes or `wake` becomes readable.
  Result<> wait(std::optional<Instant> until, int wake = -1);
  // When a look is due although nothing happened: a claim ahead of us lies idle.
  std::optional<Instant> due() const { return due_; }

  // What we keep, by index of the candidate.
  std::vector<std::size_t> kept() const;
  // Those who go before us for a GPU that we could use; only while queued.
  std::vector<TicketInfo> ahead() const;

  // Done: leaves the queue, says in each file what it is held for, and hands the
  // locks over, in the order of the candidates.
  Result<std::vector<LockedFile>> finish();
  Demand& demand() { return demand_; }
  // Our place in the queue, once we are in it.
  const TicketRecord& ticket() const { return ticket_record_; }
  Place place() const;

 private:
  Result<> join(const LeaseFolder::Door& door, const FolderState& state);
  Result<> update_ticket(const LeaseFolder::Door& door, bool hopeful);
  Result<> take(const LeaseFolder::Door& door, std::size_t index, LeaseKind kind);
  void drop(const LeaseFolder::Door& door, std::size_t index);
  void forget_revoked();
  bool note_idle_claims(const std::vector<Standing>& standing);
  bool note_stopped(const std::vector<Standing>& standing);
  void remember(FolderState state);
  void refresh(const std::string& file, bool closed);
  Result<> read_events();
  void look_at_closing();
  std::set<std::string> our_files() const;
  std::vector<Standing> stand();
  bool alive_in_cache(const std::string& file) const;

  const LeaseFolder* folder_;
  Demand demand_;
  std::vector<Candidate> candidates_;
  std::map<std::size_t, LockedFile> kept_;
  std::map<std::size_t, LeaseRecord> records_;
  std::optional<LockedFile> ticket_;
  TicketRecord ticket_record_;
  std::int64_t ticket_born_ = 0;

  Fd watch_;  // inotify on the folder
  bool stale_ = true;
  FolderState state_;  // as it was read, and kept up to date by events
  // Closed, yet still locked: the kernel tells of the close just before it drops the lock.
  struct Closing {
    Instant first;
    Instant next;
    Duration pause;
  };
  std::map<std::string, Closing> closing_;

  struct Idle {
    Instant first;        // seen free and spoken for, and not taken since
    Instant since;        // ... by the same one
    std::string speaker;  // its ticket
  };
  std::map<std::string, Idle> idle_;  // by UUID
  PassedOver passed_over_;
  std::optional<Instant> due_;
};

}  // namespace lull
