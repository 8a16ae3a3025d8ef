#pragma once
// Who holds which GPU now: every process with a compute context, whose it is, and of which job. Only processes that can
// be named for sure are holders (a number that means something here, with its start time); the display server, the
// persistence daemon, the MPS server and whatever else only looks are none. Who only draws holds nothing either, but a
// job with such a process works there, or may. What cannot be seen is said to be so, and never taken for nobody.
//
// A job is, in this order: a Slurm job, a container (unless it is the one that we are in as well), the holder of a
// lease with what it started, or a process tree: from the holder up to below the shell that somebody types into
// (shell.h), the terminal or the service that it was started from. Where the tree is broken, since a launcher has ended
// or another user's process stands above, those of one process group stay together, and with the leader of their
// session if that is no such shell. Which job a process is of is found out when it is first seen, and stays so, also
// for those below it that come later: the top of a tree may end long before the rest.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "act/holders.h"
#include "base/fd.h"
#include "base/process.h"
#include "gpu/snapshot.h"
#include "jobs/dark_cards.h"
#include "lease/folder.h"

namespace lull {

// One GPU and who is there.
struct Card {
  Device device;
  std::vector<Holder> holders;
  std::vector<Holder> drawers;  // that have a graphics context only
  // Those that hold it and cannot be named from here: of another pid namespace.
  std::vector<pid_t> strangers;
  bool listed = false;     // its processes could be looked at
  bool complete = false;   // and nobody who is not listed can be there
  bool reachable = false;  // it was not lost or closed to us all the time
  // It was: those who hold its device file, and their jobs. They may have been at work there before.
  std::set<pid_t> openers = {};
  std::set<std::string> opener_jobs = {};
};

class Census {
 public:
  using Leases = std::function<std::vector<LeaseInfo>()>;
  explicit Census(Root root = {}, Leases leases = nullptr);

  std::vector<Card> look(const Snapshot& snapshot);

 private:
  struct Known {
    std::string job;
    std::string title;
    bool ignored = false;
    pid_t group = 0;  // of the process, when it was first seen
    pid_t session = 0;
  };
  using Name = std::pair<pid_t, std::uint64_t>;
  Holder meet(const ProcessEntry& entry, uid_t user, std::map<Name, Known>& still, bool& ignored);
  Known find_job(const ProcessEntry& entry, uid_t user);
  Known tree_of(const ProcessEntry& entry);
  std::optional<Known> known_as(const Name& name) const;
  std::optional<Known> known_group(const ProcessEntry& one) const;
  std::optional<ProcessEntry> next_above(const ProcessEntry& one) const;
  std::optional<ProcessEntry> leader_of(const ProcessEntry& one) const;
  bool is_alive(const Name& name) const;
  void look_at_files(const Snapshot& snapshot, std::vector<Card>& cards);

  Root root_;
  Leases leases_;
  std::string own_container_;
  std::map<Name, Known> known_;     // who held a GPU
  std::map<Name, Known> in_trees_;  // and everybody between them and the top of their tree
  std::set<DeviceId> reached_;
  DarkCards dark_cards_;
};

}  // namespace lull
