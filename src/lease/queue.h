#pragma once
// The queue of those who wait for GPUs. LeaseQueue applies the rules of standings.h: it
// takes and gives back under the folder lock, keeps the waiter's ticket up to
// date and says what to sleep on until something happens that it may act on. That is any change
// of the folder for the first in line; for those behind, that one two places ahead of
// them is gone, so a GPU that comes free wakes three processes however many wait. It knows
// nothing of utilisation: the caller says which GPUs are fit (docs/leases.md).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "lease/folder.h"
#include "lease/standings.h"
#include "lease/watch.h"

namespace lull {

struct Demand {
  unsigned count = 1;
  int priority = 0;
  unsigned share = 1;   // be one of so many holders of a GPU at most
  std::string within;   // narrows a lease: its id
  LeaseRecord pattern;  // who, what: the rest of each record is filled in
};

// Of `open` (indices of candidates that may be taken) choose `count`, given those we keep already.
using Chooser = std::function<std::vector<std::size_t>(std::span<const std::size_t> open,
                                                       std::span<const std::size_t> kept, std::size_t count)>;

// What one who waits sleeps on: whichever comes first. The descriptors stay their owner's.
struct Sleep {
  std::vector<int> events = {};  // readable: something happened
  std::optional<Instant> until = {};
};

class LeaseQueue {
 public:
  LeaseQueue(const LeaseFolder& folder, Demand demand, std::vector<Candidate> candidates, const Clock& clock);

  std::span<Candidate> candidates() { return candidates_; }

  // As of about now, without the folder lock. After woken() only what changed is read again.
  // What it points to is good until the next call of anything here.
  Result<std::vector<Standing>> look();

  // All or nothing, for those who do not queue: true if all were taken.
  Result<bool> take_now(const Chooser& choose);
  // After a no: what is missing is free, and those ahead of us may take it in a moment. A waiter that does not is
  // passed over after some looks.
  bool awaits_those_ahead();

  // One turn of a waiter: joins the queue if it is not in it, gives up what those
  // ahead want, takes what is free, fit and not spoken for. True: all collected.
  // While the GPUs that can be had at all are too few, it keeps nothing from others.
  Result<bool> turn(const Chooser& choose);

  // What a second look showed to be in use after all.
  Result<> give_back(std::span<const std::size_t> indices);

  // Others are ahead of us for everything that we could take: there is nothing for us to look at.
  bool covered() const { return cover() != nullptr; }
  // Until something happens that concerns us, or `until` comes. woken() is to follow.
  Sleep sleep(std::optional<Instant> until);
  // Takes in what happened meanwhile.
  Result<> woken();

  // What we keep, by index of the candidate.
  std::vector<std::size_t> kept() const;
  // Of these those that the newest readings do not suit.
  std::vector<std::size_t> unfit_of_kept();
  // How many go before us for a GPU that we could use, as far as we needed to look; only while queued.
  std::size_t ahead() const;

  // Done: leaves the queue, says in each file what it is held for, and hands the
  // locks over, in the order of the candidates. Nothing: what is known of the GPUs was no longer `fresh` once the
  // folder could be changed, and all is as before.
  Result<std::optional<std::vector<LockedFile>>> finish(const std::function<bool()>& fresh = [] { return true; });
  // After that: what is left of the watch, to be closed later.
  Fd end_watch() { return watch_.end_later(); }
  Demand& demand() { return demand_; }
  bool queued() const { return ticket_.has_value(); }
  // Our place in the queue, once we are in it.
  const TicketRecord& ticket() const { return ticket_record_; }
  Place place() const;

 private:
  Result<> join(const LeaseFolder::FolderLock& folder_lock);
  Result<> update_ticket(const LeaseFolder::FolderLock& folder_lock, bool hopeful);
  Result<> take(const LeaseFolder::FolderLock& folder_lock, std::size_t index, LeaseKind kind);
  Result<> take_some(const LeaseFolder::FolderLock& folder_lock, const Chooser& choose,
                     const std::vector<Standing>& standing, std::size_t count, LeaseKind kind);
  void drop(const LeaseFolder::FolderLock& folder_lock, std::size_t index);
  void forget_revoked();
  bool note_idle_claims(const std::vector<Standing>& standing);
  bool note_stopped(const std::vector<Standing>& standing);
  std::vector<std::size_t> open_ones(const std::vector<Standing>& standing) const;
  std::set<std::string> our_files() const;
  std::vector<Standing> stand();
  bool wanted(std::size_t index) const;
  const TicketInfo* cover(const FolderState& state) const;
  const TicketInfo* cover() const { return cover(watch_.state()); }
  Result<> read_anew();
  Result<> read_ahead(bool verify);
  Result<> look_around();
  void verify_ahead();
  Result<std::vector<Standing>> stand_among_all();
  Sleep sleep_behind(const TicketInfo& ahead, std::optional<Instant> until);

  const LeaseFolder* folder_;
  const Clock* clock_;
  Demand demand_;
  std::vector<Candidate> candidates_;
  std::map<std::size_t, LockedFile> kept_;
  std::map<std::size_t, LeaseRecord> records_;
  std::optional<LockedFile> ticket_;
  TicketRecord ticket_record_;
  std::int64_t ticket_born_ = 0;
  WakePipe wake_pipe_;  // of our ticket

  FolderWatch watch_;
  // What was remembered: all of it is to be read anew; what may have changed; nothing.
  enum class Stale : std::uint8_t { wholly, partly, fresh } stale_ = Stale::wholly;
  Duration pause_{};         // between looks, where nothing can wake us
  std::string listened_to_;  // the ticket for which that is
  Fd heard_;                 // its wake pipe, while we sleep
  std::optional<Instant> look_around_;
  bool looks_around_ = false;  // that time has come

  IdleClaims idle_claims_;
  PassedOver passed_over_;
};

}  // namespace lull
