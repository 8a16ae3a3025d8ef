#pragma once
// The process tree of a job: the process that was started (or named) and all that came of it. Membership is by descent,
// where orphans of the job become our children, and by cgroup where the job has one of its own. Orphans of another
// parent's process do not become our children: they are known because they were seen before, or by the session that a
// member began. A listing is old the moment it is made, so signals go out by pidfd, and in passes until no new process
// turns up.

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
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
  // A job that we started as its subreaper. `earlier` are the children that we had
  // before (own_children()): they are not part of it.
  static Tree of_job(const Process& root, const Cgroup* cgroup, std::set<ProcessId> earlier);
  // A process that is not ours and its descendants, including those that were seen before they lost their
  // parent; never ourselves and what we started.
  static Tree of_process(const Process& root);
  // A process group, whichever processes are in it later. It is the same one as long as it contains a process that was
  // seen in it before, or (they may have changed since the previous scan) one of its session while no other session has
  // its number.
  static Result<Tree> of_group(pid_t group);
  // Everything around us but ourselves: our pid namespace where it is not the machine's
  // own, else our cgroup where it is not the root of them all.
  static Result<Tree> of_container();
  // A helper of ours and whatever it left behind: what is in its cgroup, and the orphans that have `mark`
  // ("NAME=value") in their environment; they come to us where we are a subreaper.
  static Tree of_helper(const Process& root, const Cgroup* cgroup, std::string mark);
  // A child of ours that is not a job (a hook, curl): neither it nor what it leaves behind is a member.
  void exclude(const Process& helper);

  // Ended ones left out, parents first. Reads all processes of the machine: for ending them.
  std::vector<ProcessEntry> members(const Root& root = {}) const;
  // The same for every sample, at a cost that grows with the job: each process of a job of ours is our descendant,
  // since orphans come to us, or in its cgroup, or was seen before. In other trees orphans are found only by a scan of
  // all processes, so that is done: a worker that was not seen would make a busy job look idle.
  std::vector<ProcessEntry> look(const Root& root = {}) const;
  // Those that had ended by then and were not waited for: their CPU time is in no other account yet.
  const std::vector<ProcessEntry>& unwaited() const { return unwaited_; }
  // Whether this process is of the tree: goes up from it, which is far cheaper than listing all.
  bool contains(pid_t pid, const Root& root = {}) const;

  struct Sent {
    std::size_t reached = 0;
    std::size_t refused = 0;  // alive, but not ours to signal
  };
  // To every member once; repeats (kSignalPasses) for those born meanwhile.
  Sent signal(int number, SignalOrder order = SignalOrder::parents_first, const Root& root = {}) const;
  static constexpr int kSignalPasses = 4;
  // One pass of it, in two steps: handles of all members but the `done`, to which they are added; the signal to one.
  std::vector<Process> aim(SignalOrder order, std::set<ProcessId>& done, const Root& root = {}) const;
  static void send(const Process& to, int number, Sent& sent);
  // KILL to everything there is now, and at those that are born and orphaned
  // meanwhile as fast as they come to us (bounded). Who slips through is next time's.
  void kill_pass() const { kill_pass(members()); }
  void kill_pass(const std::vector<ProcessEntry>& now) const;
  // No process is left, with proof. Certain for a job of ours; for other trees as sure as a listing can
  // be.
  bool gone() const;
  // The processes can be listed. If not, none can be signalled, and little can be proven.
  bool can_look() const;
  // A process of it cannot run: stopped, or its cgroup frozen.
  bool is_halted() const;

 private:
  std::optional<std::vector<ProcessEntry>> near(const Root& root) const;
  bool is_foreign(const ProcessEntry& one, pid_t us) const;
  std::vector<ProcessEntry> members_among(const std::vector<ProcessEntry>& all, const Root& root) const;
  bool is_skipped(const ProcessEntry& one, pid_t us) const;
  std::vector<pid_t> of_known_sessions(const std::vector<ProcessEntry>& all, pid_t us) const;
  void remember(const std::vector<ProcessEntry>& all, const std::vector<ProcessEntry>& found) const;
  bool has_no_children() const;
  bool strike_orphans(std::set<pid_t>& ended) const;

  enum class Kind : std::uint8_t { descent, group, pid_namespace, cgroup };
  std::vector<ProcessEntry> others(const std::vector<ProcessEntry>& all) const;

  Kind kind_ = Kind::descent;
  pid_t root_pid_ = 0;
  std::uint64_t root_start_ = 0;
  mutable std::vector<ProcessEntry> unwaited_;
  mutable std::set<ProcessId> known_;     // seen as members, and there when we last looked
  mutable std::set<ProcessId> leaders_;   // members that began a session that still has a process
  pid_t session_ = 0;                     // of a group
  mutable int empty_looks_ = 0;           // of a group, one after the other
  std::shared_ptr<const Cgroup> around_;  // ours
  bool adopts_orphans_ = false;
  const Cgroup* cgroup_ = nullptr;
  std::string mark_;  // of a helper
  std::set<ProcessId> foreign_;
  mutable std::map<ProcessId, bool> marked_;  // orphans, and whether they are of a helper
};

// Environment variable that marks what we started ourselves beside the job.
inline constexpr const char* kHelperMark = "LULL_HELPER_OF";
inline constexpr const char* kHelperNumber = "LULL_HELPER_NUMBER";  // which of them

// Ending a tree, step by step: the signal, the grace, then KILL until nothing is left. The caller drives it: step()
// now, and again when something ended or at the time it names. The grace is time in which the tree could run: not
// while a process of it is stopped or frozen, and not while we, and perhaps the whole machine, did not run.
class Ending {
 public:
  struct Options {
    int signal = 15;      // 0: straight to KILL
    bool to_tree = true;  // false: the signal goes to the root alone
    Duration grace = std::chrono::seconds(10);
    SignalOrder order = SignalOrder::parents_first;
    Duration give_up = std::chrono::seconds(10);       // after the first KILL: what is left is stuck in the kernel
    Duration longest_halt = std::chrono::minutes(10);  // for so long a tree that cannot run keeps its grace
    bool check_before_kill = true;                     // who works again within the grace is not killed
  };
  enum class State : std::uint8_t {
    signalled,
    killing,
    gone,
    stuck,
    unproven,  // the root is gone; who else is left cannot be seen
  };

  Ending(const Tree& tree, const Process& root, Options options) : tree_(tree), root_(root), options_(options) {}

  // The next time to look, or nothing when it is over.
  std::optional<Instant> step(Instant now);

  // Asked right before each signal, once its targets are known, and right before the first KILL: whether it may
  // be sent. If not, nothing is done but to wait, until step() after go_on().
  void check_before(std::function<bool()> signal, std::function<bool()> kill) {
    may_signal_now_ = std::move(signal);
    if (options_.signal != 0 && options_.signal != 9) may_kill_now_ = std::move(kill);
  }
  bool waits_to_signal() const { return waits_to_signal_; }
  void go_on() { waits_to_signal_ = false; }

  // There is a check before the first KILL: until may_kill() is true, the tree is only observed.
  void ask_first() { may_kill_ = options_.signal == 0 || options_.signal == 9; }
  void may_kill() { may_kill_ = true; }
  bool waits_to_kill() const { return waits_to_kill_ && !may_kill_; }

  State state() const { return state_; }
  std::size_t signalled() const { return signalled_; }  // reached by the first signal
  std::size_t killed() const { return killed_; }        // needed KILL
  const std::vector<ProcessEntry>& left() const { return left_; }

 private:
  std::optional<Instant> kill(Instant now);
  void count(Instant now);
  bool signal_first();
  bool all_gone() const { return root_.ended() && tree_.gone(); }

  const Tree& tree_;
  const Process& root_;
  Options options_;
  State state_ = State::signalled;
  bool begun_ = false;
  std::function<bool()> may_signal_now_;
  std::function<bool()> may_kill_now_;
  bool waits_to_signal_ = false;
  std::vector<Process> aimed_;  // get the signal next, the last one first
  std::set<ProcessId> reached_;
  int passes_ = 0;
  bool may_kill_ = true;
  bool waits_to_kill_ = false;  // the grace is over
  Duration grace_left_{};
  Duration halted_{};  // so far
  Instant looked_at_{};
  Instant looks_next_{};
  std::optional<Instant> first_kill_;
  Duration pause_ = std::chrono::milliseconds(1);
  std::size_t signalled_ = 0;
  std::size_t killed_ = 0;
  std::set<ProcessId> struck_;
  std::vector<ProcessEntry> left_;
};

}  // namespace lull
