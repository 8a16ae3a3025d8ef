#pragma once
// What the processes of a job do besides using their GPUs: CPU, bytes read and written, and for how long they have
// written nothing, since the previous sample. If it cannot be exact it is too busy, never too idle.
//
// What a child did enters its parent's account when it is waited for: work of short-lived children is seen, that of a
// long-lived one shows a second time. One that was not waited for makes `cpu` unknown for that sample. Bytes are those
// of system calls and those of disks, where mapped files and splice show alone. A process whose account may not be read
// makes `io` and `quiet` unknown, and so do uncounted bytes: some sockets, io_uring, an orphan's last bytes.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/clock.h"
#include "base/fd.h"
#include "base/process.h"
#include "gpu/metric.h"
#include "gpu/snapshot.h"
#include "sense/sockets.h"

namespace lull {

struct JobUsage {
  double cpu_percent = kUnknown;  // of one core: 250 is two and a half cores
  double io_bytes_per_second = kUnknown;
  double quiet_seconds = kUnknown;
  bool io_unreadable = false;
  bool cpu_uncounted = false;  // a process ended and it is unknown how much it had used
  bool io_uncounted = false;   // there may be uncounted bytes
  std::string uncounted = {};  // by what, for a person; empty: it is over already
};

// What there is to a job beside its own processes.
struct JobMore {
  std::optional<std::uint64_t> cgroup_cpu = {};  // microseconds that the job's own cgroup counted, which is exact
  std::span<const pid_t> in_cgroup = {};         // the cgroup's processes: one may have been moved to another
  std::span<const ProcessEntry> outside = {};    // work that counts as the job's, outside its tree
  std::span<const Reaped> orphans = {};          // of the job, which we waited for since the sample before
};

class JobSensor {
 public:
  // `sockets`: what goes over them counts for `io`, which costs a look at the open files, and a list of the kernel's
  // connections.
  explicit JobSensor(Root root = {}, bool sockets = false) : root_(std::move(root)), count_sockets_(sockets) {}

  // Some members may have ended, as long as they were not waited for.
  JobUsage sample(std::span<const ProcessEntry> members, Instant at, const JobMore& more = {});
  void reset();  // a new job

 private:
  struct Account {
    std::uint64_t start_ticks = 0;
    std::uint64_t cpu_ticks = 0;  // its own and of the children it waited for
    std::uint64_t children_ticks = 0;
    pid_t parent = 0;
    bool ended = false;    // and was not waited for
    bool outside = false;  // of the tree, or of its cgroup
    bool io_known = false;
    std::uint64_t read_bytes = 0;  // by system calls, and by disks
    std::uint64_t written_bytes = 0;
  };
  struct Sums {
    double cpu = 0;      // seconds, of the tree
    double own = 0;      // of these, what was not done by children
    double outside = 0;  // and of what is outside of the tree or of its cgroup
    double bytes = 0;
    double children = 0;  // seconds that entered an account because a child was waited for
    bool io_known = true;
    bool untold = false;  // a process ended and its bytes are unknown
    bool wrote = false;
  };
  struct Stretch {  // between two samples
    double seconds = 0;
    double cpu = kUnknown;  // seconds
    double bytes = kUnknown;
  };
  Account account_of(const ProcessEntry& entry, bool outside) const;
  void add(const ProcessEntry& member, bool outside, Sums& sums);
  bool vanished_uncounted(const Sums& sums, const JobMore& more, bool exact) const;
  double beside_cgroup(const Sums& sums, const JobMore& more, double counted) const;
  bool is_there(pid_t pid, const Account& account) const;
  double unseen_of(const Reaped& orphan) const;
  bool somebody_left_untold() const;
  std::optional<pid_t> loses_children();

  Root root_;
  bool count_sockets_;
  SocketCounter sockets_{root_};
  std::unordered_map<pid_t, Account> before_;
  std::unordered_map<pid_t, Account> now_;
  std::optional<Instant> last_at_;
  std::optional<std::uint64_t> last_born_;  // the machine's newest process
  Stretch last_;
  std::optional<std::uint64_t> cgroup_before_;
  std::optional<Instant> last_wrote_;
};

// As a rule's signals; what is not known says why.
void add_to(Facts& facts, const JobUsage& usage);

}  // namespace lull
