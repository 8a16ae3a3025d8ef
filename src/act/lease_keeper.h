#pragma once
// The keeper is a tiny process beside a job that holds the job's leases too. The
// job inherits the locks, but programs close descriptors that they do not know
// (daemons, Python's subprocess, some shells); the keeper's copies last until the
// job's main process has ended, seen through its pidfd. It has no terminal, no
// stdio, and its end is told to nobody, so pipes close and `wait` returns as if it
// were not there. While its parent still waits in the queue it is there to clear
// the parent's files away should that be killed.
//
// Start it before the driver's library is loaded: it begins with whatever descriptors
// there are, and lets go of them only when it has something to keep.

#include <span>

#include "act/lease.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"

namespace lull {

class Keeper {
 public:
  static Result<Keeper> start(const LeaseFolder& folder);

  // Its parent is going to wait, perhaps for hours: let go of the terminal now.
  Result<> stand_by();

  // Hands over the locks, until the process behind `pidfd` has ended or until
  // the time is over. They are safe from the moment this returns, even if the
  // keeper has not run yet: what is on its way in a socket is held.
  Result<> keep_while(int pidfd, std::span<const int> locks);
  Result<> keep_for(Duration duration, std::span<const int> locks);

  // The last word of a process that is about to become the command, or to end: its
  // memory will be the keeper's alone, which gives it back. Nothing may follow but
  // exec or the end of the process.
  Result<> part();

  pid_t pid() const { return pid_; }  // the keeper's own, for the record of a hold

 private:
  Keeper(Fd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  Result<> hand_over(std::span<const int> locks);
  Fd socket_;
  pid_t pid_;
};

}  // namespace lull
