#pragma once
// The lease holder is a small process beside a job that holds the job's leases too. The
// job inherits the locks, but programs close descriptors that they do not know
// (daemons, Python's subprocess, some shells); the lease holder's copies last until the
// job's main process has ended, seen through its pidfd. It has no terminal, no
// stdio, and is not a child of the job, so pipes close and `wait` returns as if it
// were not there. While its parent still waits in the queue it is there to clear
// the parent's files away should that be killed.
//
// Start it while there are no threads: it is an ordinary fork (base/process_start.h).

#include <span>

#include "base/clock.h"
#include "base/fd.h"
#include "base/result.h"
#include "lease/folder.h"

namespace lull {

class LeaseHolder {
 public:
  static Result<LeaseHolder> start(const LeaseFolder& folder);

  // Its parent is going to wait, perhaps for hours: let go of the terminal now.
  Result<> stand_by();

  // Hands over the locks, until the process behind `pidfd` has ended or until
  // the time is over. They are safe from the moment this returns, even if the
  // lease holder has not run yet: what is on its way in a socket is held.
  Result<> keep_while(int pidfd, std::span<const LockedFile> locks);
  Result<> keep_for(Duration duration, std::span<const LockedFile> locks);

  // The locks that it was handed go, and what it was told to wait for counts no more.
  Result<> release();

  // Something that takes long to close, such as an inotify instance (the kernel waits for milliseconds until it is no
  // longer in use): the lease holder closes it later, so that our exec need not.
  void close_for_us(Fd descriptor);

  pid_t pid() const { return pid_; }  // the lease holder's own, for the record of a hold

 private:
  LeaseHolder(Fd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  Result<> hand_over(std::span<const LockedFile> locks);
  Fd socket_;  // closed by exec, or with the process: then the lease holder has heard all
  pid_t pid_;
};

}  // namespace lull
