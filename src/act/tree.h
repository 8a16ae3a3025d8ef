#pragma once
// The process tree of a job: the process that was started (or named) and all that
// came of it. Membership is by cgroup where the job has one of its own; else by
// descent, where orphans of the job count because they became our children. A
// listing is old the moment it is made, so signals go out by pidfd, after a check
// that the pid still is who it was, and in passes until nobody new turns up.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "act/cgroup.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/result.h"

namespace lull {

enum class SignalOrder : std::uint8_t {
  parents_first,  // a script does not go on to its next line
  deepest_first,
};

class Tree {
 public:
  using Name = std::pair<pid_t, std::uint64_t>;  // pid and start time

  // A job that we started as its subreaper. `earlier` are the children that we had
  // before (own_children()): they are not part of it.
  static Tree of_job(const Process& root, const Cgroup* cgroup, std::set<Name> earlier);
  // Somebody else's process and its descendants; never ourselves and what we started.
  static Tree of_process(const Process& root);
  // A process group: whoever is in it later, as long as one is left who is in it now
  // (the number cannot mean another group before that).
  static Result<Tree> of_group(pid_t group);
  // Everything around us but ourselves: our pid namespace where it is not the machine's
  // own, else our cgroup where it is not the root of them all.
  static Result<Tree> of_container();
  // A child of ours that is no job (a hook, curl): neither it nor what it leaves behind is a member.
  void exclude(const Process& helper);

  std::vector<ProcessEntry> members(const Root& root = {}) const;  // ended ones left out, parents first
  // Whether this process is of the tree: goes up from it, which is far cheaper than listing all.
  bool contains(pid_t pid) const;

  struct Sent {
    std::size_t reached = 0;
    std::size_t refused = 0;  // alive, but not ours to signal
  };
  // To every member once; repeats (a few times) for those born meanwhile.
  Sent signal(int number, SignalOrder order = SignalOrder::parents_first) const;
  // KILL to everything there is now, and at those that are born and orphaned
  // meanwhile as fast as they come to us (bounded). Who slips through is next time's.
  void kill_pass() const;
  // Nobody is left. Certain for a job of ours; for somebody else's process as
  // sure as a listing can be.
  bool gone() const;

 private:
  bool is_foreign(const ProcessEntry& one, pid_t us) const;
  bool strike_orphans(std::set<pid_t>& ended) const;

  enum class Kind : std::uint8_t { descent, group, pid_namespace, cgroup };
  std::vector<ProcessEntry> others(const std::vector<ProcessEntry>& all) const;

  Kind kind_ = Kind::descent;
  pid_t root_pid_ = 0;
  std::uint64_t root_start_ = 0;
  std::set<Name> witnesses_;              // of a group
  std::shared_ptr<const Cgroup> around_;  // ours
  bool adopts_orphans_ = false;
  const Cgroup* cgroup_ = nullptr;
  std::set<Name> foreign_;
  mutable std::map<Name, bool> marked_;  // orphans, and whether they are of a helper
};

// Environment variable that marks what we started ourselves beside the job.
inline constexpr const char* kHelperMark = "LULL_HELPER_OF";

// Ending a tree, step by step: the signal, the grace, then KILL until nothing is
// left. The caller drives it: step() now, and again when something ended or at
// the time it names. No clock, no sleep in here.
class Ending {
 public:
  struct Options {
    int signal = 15;      // 0: straight to KILL
    bool to_tree = true;  // false: the signal goes to the root alone
    Duration grace = std::chrono::seconds(10);
    SignalOrder order = SignalOrder::parents_first;
    Duration give_up = std::chrono::seconds(10);  // after the first KILL: what is left is stuck in the kernel
  };
  enum class State : std::uint8_t { signalled, killing, gone, stuck };

  Ending(const Tree& tree, const Process& root, Options options) : tree_(tree), root_(root), options_(options) {}

  // The next time to look, or nothing when it is over.
  std::optional<Instant> step(Instant now);

  State state() const { return state_; }
  std::size_t signalled() const { return signalled_; }  // reached by the first signal
  std::size_t killed() const { return killed_; }        // needed KILL
  const std::vector<ProcessEntry>& left() const { return left_; }

 private:
  std::optional<Instant> kill(Instant now);

  const Tree& tree_;
  const Process& root_;
  Options options_;
  State state_ = State::signalled;
  bool begun_ = false;
  std::optional<Instant> kill_at_;
  std::optional<Instant> first_kill_;
  Duration pause_ = std::chrono::milliseconds(1);
  std::size_t signalled_ = 0;
  std::size_t killed_ = 0;
  std::set<Tree::Name> struck_;
  std::vector<ProcessEntry> left_;
};

}  // namespace lull
