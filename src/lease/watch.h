#pragma once
// The lease folder as one who waits remembers it, kept up to date by events (inotify) while it
// watches. Watching is for those who may act on what happens: a user has few inotify instances.

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "lease/folder.h"

namespace lull {

class FolderWatch {
 public:
  FolderWatch(const LeaseFolder& folder, const Clock& clock) : folder_(&folder), clock_(&clock) {}

  FolderState& state() { return state_; }
  const FolderState& state() const { return state_; }
  const TicketInfo* ticket(const std::string& file) const;

  Result<> read_all();
  // LeaseFolder::scan_ahead()
  Result<> read_ahead(const Place& us, const std::function<bool(const FolderState&)>& enough);
  // All leases and all who are ahead, anew: what was known counts for nothing.
  Result<> read_all_ahead(const Place& us);
  void refresh(const std::string& file);

  // False: there is no inotify to be had.
  bool begin();
  void end() {
    events_.reset();
    begun_.reset();
  }
  // Ends it, and leaves the closing to the caller: that takes milliseconds.
  Fd end_later() { return std::move(events_); }
  bool watching() const { return static_cast<bool>(events_); }
  int descriptor() const { return events_.get(); }
  // Takes in what happened. False: too much to tell, all has to be read.
  Result<bool> read_events(const std::set<std::string>& our_files);
  // When a look is due although nothing happened.
  std::optional<Instant> due() const;

 private:
  void look_at_closing();
  bool alive(const std::string& file) const;

  const LeaseFolder* folder_;
  const Clock* clock_;
  FolderState state_;
  Fd events_;
  // Closed, yet still locked: the kernel tells of the close just before it drops the lock.
  struct Closing {
    Instant first;
    Instant next;
    Duration pause;
  };
  std::map<std::string, Closing> closing_;
  // Any file may have been closed just before the watch began, and still be locked when it is read.
  std::optional<Closing> begun_;
};

// How waiters learn that one ahead of them has ended, or wants something else now: a named pipe
// next to its ticket that is never written to. It wakes readers when its last writer has ended,
// in whatever way, and any number of processes can wait for that without an inotify instance each
// (a user has 128 by default). A waiter without such a pipe looks now and then.
class WakePipe {
 public:
  WakePipe() = default;
  // For the ticket of this name, inside the folder lock; silent where a pipe cannot be made.
  static WakePipe hang(int folder, const std::string& ticket);
  // Tells those who listen to look; from then on it is gone.
  void ring(int folder);

 private:
  Fd pipe_;
  std::string file_;
};

inline constexpr const char* kWakePipePrefix = "wake.";

// Readable (hung up) from when that ticket's wake pipe was closed. Nothing: there is none to listen to, or it has.
Fd listen_to_wake_pipe(int folder, const std::string& ticket, uid_t owner);

// A wake pipe without a writer.
bool is_dead_wake_pipe(int folder, const std::string& file);

}  // namespace lull
