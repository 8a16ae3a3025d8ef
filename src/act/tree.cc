#include "act/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <thread>
#include <unordered_set>

#include "base/process_start.h"

namespace lull {
namespace {

constexpr int kEnvironmentTries = 20;

using namespace std::chrono_literals;

constexpr int kStrikes = 200;

// Our own children, in one read; zombies included. Fails where the kernel does not tell.
Result<std::vector<pid_t>> direct_children() { return read_children(::getpid(), ::getpid()); }

// A listing in which not even we are is none.
bool shows_us(const std::vector<ProcessEntry>& all) {
  const auto us = std::ranges::lower_bound(all, ::getpid(), {}, &ProcessEntry::pid);
  return us != all.end() && us->pid == ::getpid();
}

constexpr Duration kEnvironmentLimit = 200ms;

// Who has started helpers, beside whatever job: an orphan of ours may be theirs from then on. A fork of ours has none.
pid_t started_helpers = 0;

// Started by us beside the job, or left behind by something that was. The kernel looks into the memory of the process
// for its environment, which may hang: one that does not tell in time counts as the job's.
bool is_marked(pid_t pid, const std::string& mark) {
  const auto environment = run_with_timeout(
      [&] {
        // In the middle of an exec it has none.
        std::string text;
        for (int i = 0; i < kEnvironmentTries && text.empty(); ++i) {
          if (i > 0) {
            const auto now = read_process_entry(pid);
            if (!now || now->ended()) break;  // nor has one that has ended
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          text = read_file("/proc/" + std::to_string(pid) + "/environ").value_or(std::string());
        }
        return text;
      },
      kEnvironmentLimit);
  if (!environment) return false;
  const auto at = environment->find(mark);
  if (at == std::string::npos) return false;
  const std::size_t end = at + mark.size();
  return (at == 0 || (*environment)[at - 1] == '\0') && (end == environment->size() || (*environment)[end] == '\0');
}

// A session is left by beginning another, and entered by birth alone; a helper begins one. So whoever is in ours, or in
// one that a member of the job began, is not a helper's. This costs nothing, however fast a job hands over by fork: to
// ask for an environment takes a process, and half a millisecond.
bool is_of_job_by_session(const ProcessEntry& one, const std::set<ProcessId>& leaders) {
  if (one.session == ::getsid(0)) return true;
  const auto leader = leaders.lower_bound({one.session, 0});
  return leader != leaders.end() && leader->first == one.session && one.start_ticks >= leader->second;
}

constexpr Duration kLongestPause = 50ms;
constexpr Duration kKillPause = 2ms;
// As late as a busy machine may let us look. Beyond that we did not run, and perhaps no process did.
constexpr Duration kLateness = 100ms;

}  // namespace

Tree Tree::of_job(const Process& root, const Cgroup* cgroup, std::set<ProcessId> earlier) {
  Tree tree = of_process(root);
  tree.adopts_orphans_ = true;
  tree.cgroup_ = cgroup;
  tree.foreign_ = std::move(earlier);
  return tree;
}

Tree Tree::of_process(const Process& root) {
  Tree tree;
  tree.root_pid_ = root.pid();
  tree.root_start_ = root.start_ticks();
  return tree;
}

Tree Tree::of_helper(const Process& root, const Cgroup* cgroup, std::string mark) {
  Tree tree = of_process(root);
  tree.cgroup_ = cgroup;
  tree.mark_ = std::move(mark);
  return tree;
}

Result<Tree> Tree::of_group(pid_t group) {
  Tree tree;
  tree.kind_ = Kind::group;
  tree.root_pid_ = group;
  for (const ProcessEntry& one : read_all_processes()) {
    if (one.group != group || one.ended()) continue;
    tree.known_.insert(one.id());
    tree.session_ = one.session;
    if (one.pid == group) tree.root_start_ = one.start_ticks;
  }
  if (tree.known_.empty()) return fail(ESRCH, "process group " + std::to_string(group));
  return tree;
}

Result<Tree> Tree::of_container() {
  Tree tree;
  // The machine's own pid namespace has this inode number since there are namespaces (PROC_PID_INIT_INO).
  constexpr ino_t kMachine = 0xEFFFFFFCU;
  struct stat info{};
  if (::stat("/proc/self/ns/pid", &info) == 0 && info.st_ino != kMachine) {
    tree.kind_ = Kind::pid_namespace;
    return tree;
  }
  auto own = Cgroup::own();
  const auto where = read_cgroups(0);
  if (!own || !where || where->find("0::/\n") != std::string::npos)
    return fail("this is not a container: it has neither a pid namespace nor a cgroup of its own");
  tree.kind_ = Kind::cgroup;
  tree.around_ = std::make_shared<const Cgroup>(*std::move(own));
  return tree;
}

// Of those that are not a matter of descent. Ourselves and what we started are never among them.
std::vector<ProcessEntry> Tree::others(const std::vector<ProcessEntry>& all) const {
  const pid_t us = ::getpid();
  std::unordered_set<pid_t> mine;
  for (const ProcessEntry& one : descendants(all, us)) mine.insert(one.pid);
  std::vector<ProcessEntry> found;
  std::unordered_set<pid_t> inside;
  if (kind_ == Kind::cgroup)
    for (const pid_t pid : around_->members()) inside.insert(pid);
  bool witnessed = false;
  bool taken = false;  // the number of the group is another process's by now
  for (const ProcessEntry& one : all) {
    if (kind_ == Kind::group && one.pid == root_pid_) taken = one.start_ticks != root_start_;
    if (one.ended() || mine.contains(one.pid)) continue;
    const bool in = kind_ == Kind::group           ? one.group == root_pid_
                    : kind_ == Kind::pid_namespace ? true
                                                   : inside.contains(one.pid);
    if (!in) continue;
    witnessed |= known_.contains(one.id());
    found.push_back(one);
  }
  if (kind_ != Kind::group) return found;
  // After two scans that found no process it is over: the number may mean another group some day.
  constexpr int kOver = 2;
  if (empty_looks_ >= kOver) return {};
  if (!witnessed) std::erase_if(found, [&](const ProcessEntry& one) { return taken || one.session != session_; });
  if (!all.empty()) {
    known_.clear();
    empty_looks_ = found.empty() ? empty_looks_ + 1 : 0;
  }
  for (const ProcessEntry& one : found) known_.insert(one.id());
  return found;
}

void Tree::exclude(const Process& helper) {
  foreign_.insert(helper.id());
  started_helpers = ::getpid();
}

bool Tree::is_foreign(const ProcessEntry& one, pid_t us) const {
  if (foreign_.contains(one.id()) || is_own_process(one.pid, one.start_ticks)) return true;
  if (one.parent != us || one.pid == root_pid_) return false;
  // Came to us as an orphan. Older than the job: not of it.
  if (one.start_ticks < root_start_) return true;
  if (known_.contains(one.id())) return false;
  // The init of a container gets all orphans; those of the job are born in its cgroup.
  if (cgroup_ != nullptr && us == 1) return true;
  if (started_helpers != us || is_of_job_by_session(one, leaders_)) return false;
  // Asked once: a process inherits its environment from its parent.
  const auto known = marked_.find(one.id());
  if (known != marked_.end()) return known->second;
  if (one.ended()) return false;  // its environment is gone
  const bool marked = is_marked(one.pid, std::string(kHelperMark) + "=" + std::to_string(us));
  marked_.emplace(one.id(), marked);
  return marked;
}

bool Tree::is_skipped(const ProcessEntry& one, pid_t us) const {
  if (one.pid == root_pid_) return one.start_ticks != root_start_;  // the pid belongs to another process now
  if (!adopts_orphans_) return one.pid == us;
  return is_foreign(one, us);
}

// A session contains only descendants of its leader, since a process can only be born into it. Its number is not reused
// while it has a process.
std::vector<pid_t> Tree::of_known_sessions(const std::vector<ProcessEntry>& all, pid_t us) const {
  std::vector<pid_t> found;
  if (leaders_.empty()) return found;
  std::unordered_set<pid_t> ours;
  for (const ProcessEntry& one : descendants(all, us)) ours.insert(one.pid);
  for (const ProcessEntry& one : all) {
    const auto leader = leaders_.lower_bound({one.session, 0});
    if (leader != leaders_.end() && leader->first == one.session && !ours.contains(one.pid) &&
        one.start_ticks >= leader->second && !is_skipped(one, us))
      found.push_back(one.pid);
  }
  return found;
}

void Tree::remember(const std::vector<ProcessEntry>& all, const std::vector<ProcessEntry>& found) const {
  if (all.empty()) return;  // unknown
  known_.clear();
  std::unordered_set<pid_t> sessions;
  for (const ProcessEntry& one : found) {
    known_.insert(one.id());
    if (one.session == one.pid) leaders_.insert(one.id());
    sessions.insert(one.session);
  }
  // One without a process of the tree may soon be another.
  std::erase_if(leaders_, [&](const ProcessId& leader) {
    if (!sessions.contains(leader.first)) return true;
    const auto now = std::ranges::lower_bound(all, leader.first, {}, &ProcessEntry::pid);
    return now != all.end() && now->pid == leader.first && now->start_ticks != leader.second;
  });
}

std::vector<ProcessEntry> Tree::members_among(const std::vector<ProcessEntry>& all, const Root& root) const {
  if (kind_ != Kind::descent) return others(all);
  const pid_t us = ::getpid();
  std::vector<ProcessEntry> tree;
  std::unordered_set<pid_t> seen;
  unwaited_.clear();
  const auto add = [&](const ProcessEntry& one) {
    if (one.pid != us && seen.insert(one.pid).second) (one.ended() ? unwaited_ : tree).push_back(one);
  };
  const auto add_below = [&](pid_t pid) {
    if (seen.contains(pid)) return;
    const auto skip = [&](const ProcessEntry& one) { return is_skipped(one, us); };
    for (const ProcessEntry& one : descendants(all, pid, skip)) add(one);
  };
  add_below(adopts_orphans_ ? us : root_pid_);
  for (const auto& [pid, start] : known_) {
    const auto now = std::ranges::lower_bound(all, pid, {}, &ProcessEntry::pid);
    if (now != all.end() && now->pid == pid && now->start_ticks == start) add_below(pid);
  }
  if (!adopts_orphans_)
    for (const pid_t pid : of_known_sessions(all, us)) add_below(pid);
  for (const ProcessEntry& one : all)
    if (!mark_.empty() && one.parent == us && !one.ended() && one.start_ticks >= root_start_ &&
        !seen.contains(one.pid) && !is_own_process(one.pid, one.start_ticks) && is_marked(one.pid, mark_))
      add_below(one.pid);
  if (cgroup_ != nullptr) {
    for (const pid_t pid : cgroup_->members()) {
      const auto found = std::ranges::lower_bound(all, pid, {}, &ProcessEntry::pid);
      if (found != all.end() && found->pid == pid) {
        add(*found);
      } else if (const auto born_since = read_process_entry(pid, root)) {
        add(*born_since);
      }
    }
  }
  remember(all, tree);
  return tree;
}

std::vector<ProcessEntry> Tree::members(const Root& root) const {
  return members_among(read_all_processes(root), root);
}

// Only those of a job of ours; nothing if they cannot be distinguished from others with certainty.
std::optional<std::vector<ProcessEntry>> Tree::near(const Root& root) const {
  if (kind_ != Kind::descent || !adopts_orphans_) return std::nullopt;
  const pid_t us = ::getpid();
  std::vector<pid_t> from = {us};
  for (const ProcessId& one : known_) from.push_back(one.first);
  if (cgroup_ != nullptr)
    for (const pid_t pid : cgroup_->members()) from.push_back(pid);
  const auto skip = [&](const ProcessEntry& one) { return one.pid != us && is_skipped(one, us); };
  // A list of children costs half of what a line about a process does, and each is read twice.
  const std::size_t most = std::max<std::size_t>(count_processes(root), 16);
  auto descendants = read_descendants(from, 2 * most, skip, root);
  if (!descendants || !shows_us(*descendants)) return std::nullopt;
  return descendants;
}

std::vector<ProcessEntry> Tree::look(const Root& root) const {
  const auto descendants = near(root);
  return descendants ? members_among(*descendants, root) : members(root);
}

bool Tree::can_look() const { return shows_us(read_all_processes()); }

bool Tree::is_halted() const {
  const std::vector<ProcessEntry> all = members();
  if (std::ranges::any_of(all, [](const ProcessEntry& one) { return is_stopped(one); })) return true;
  if (cgroup_ != nullptr && cgroup_->frozen()) return true;
  std::vector<pid_t> pids;
  for (const ProcessEntry& one : all) pids.push_back(one.pid);
  return is_any_frozen(pids);
}

bool Tree::contains(pid_t pid, const Root& root) const {
  const pid_t us = ::getpid();
  if (cgroup_ != nullptr && cgroup_->holds(pid, root)) return true;
  bool inside = false;
  const auto is_clear = [&](const ProcessEntry& one) {
    if (one.pid == root_pid_) return inside = one.start_ticks == root_start_, true;
    if (known_.contains(one.id())) return inside = true;
    if (!adopts_orphans_) return false;
    if (is_foreign(one, us)) return true;
    return inside = one.parent == us;
  };
  climb(pid, is_clear, root);
  return inside;
}

Tree::Sent Tree::signal(int number, SignalOrder order, const Root& root) const {
  Sent sent;
  std::set<ProcessId> done;
  for (int pass = 0; pass < kSignalPasses; ++pass) {
    const std::vector<Process> now = aim(order, done, root);
    if (now.empty()) break;
    for (const Process& one : now) send(one, number, sent);
  }
  return sent;
}

std::vector<Process> Tree::aim(SignalOrder order, std::set<ProcessId>& done, const Root& root) const {
  std::vector<Process> aimed;
  for (const ProcessEntry& one : members(root)) {
    if (done.contains(one.id())) continue;
    auto process = Process::open(one);
    if (process || process.error().errno_value == ESRCH) done.insert(one.id());
    if (process) aimed.push_back(*std::move(process));
  }
  if (order == SignalOrder::deepest_first) std::ranges::reverse(aimed);
  return aimed;
}

void Tree::send(const Process& to, int number, Sent& sent) {
  const auto result = to.signal(number);
  if (result) {
    ++sent.reached;
  } else if (result.error().errno_value == EPERM) {
    ++sent.refused;
  }
  // A stopped process would keep the signal in its pocket.
  if (number != SIGKILL && number != SIGCONT) (void)to.signal(SIGCONT);
}

// Everyone alive in the job has an ancestor, or is one, that is our own child: a
// parent that exits leaves its children to us. Our children cannot be replaced by
// others of the same number, since only we reap them and do not do so in here.
// True: only the `ended` are left, which wait to be reaped.
bool Tree::strike_orphans(std::set<pid_t>& ended) const {
  const auto children = direct_children();
  if (!children) return true;  // none that we could name
  const pid_t us = ::getpid();
  bool quiet = true;
  for (const pid_t pid : *children) {
    if (ended.contains(pid)) continue;
    const auto stat = read_process_entry(pid);
    if (!stat) continue;
    // Whoever has to be asked for could hand over meanwhile, in a session of its own each time: it waits.
    const bool ask = started_helpers == us && pid != root_pid_ && !stat->ended() && stat->state != 'T' &&
                     !is_own_process(pid, stat->start_ticks) && !foreign_.contains(stat->id()) &&
                     !marked_.contains(stat->id()) && !is_of_job_by_session(*stat, leaders_);
    const auto process = stat->ended() ? Result<Process>(Process()) : Process::open(*stat);
    if (ask && process) (void)process->signal(SIGSTOP);
    if (is_foreign(*stat, us)) {
      if (ask && process) (void)process->signal(SIGCONT);
      continue;
    }
    quiet = false;
    if (stat->ended()) {
      ended.insert(pid);  // what it left behind shows in the next listing
    } else if (process) {
      (void)process->signal(SIGKILL);
    }
  }
  return quiet;
}

void Tree::kill_pass(const std::vector<ProcessEntry>& now) const {
  if (cgroup_ != nullptr) (void)cgroup_->kill();
  for (const ProcessEntry& one : now)
    if (const auto process = Process::open(one)) (void)process->signal(SIGKILL);
  if (!adopts_orphans_) return;
  std::set<pid_t> ended;
  for (int i = 0; i < kStrikes; ++i)
    if (strike_orphans(ended)) return;
}

// The kernel tells without /proc whether we have children. While a sensor of ours runs that is yes: then nothing is
// claimed.
bool Tree::has_no_children() const {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WSTOPPED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD;
}

bool Tree::gone() const {
  if (cgroup_ != nullptr && cgroup_->populated()) return false;
  const std::vector<ProcessEntry> all = read_all_processes();
  if (!shows_us(all)) return adopts_orphans_ && has_no_children();
  std::vector<ProcessEntry> left = members_among(all, {});
  // The init of our own namespace cannot be killed from inside; it ends when it sees fit.
  if (kind_ == Kind::pid_namespace) std::erase_if(left, [](const ProcessEntry& one) { return one.pid == 1; });
  if (!left.empty()) return false;
  if (kind_ == Kind::pid_namespace) return true;
  if (!adopts_orphans_) return members().empty();  // a second look
  const pid_t us = ::getpid();
  std::set<pid_t> ended;
  // Two listings that agree: one that was alive in the first may since have handed over.
  for (int i = 0; i < 2; ++i) {
    const auto children = direct_children();
    if (!children) return members().empty();
    bool somebody_new = false;
    for (const pid_t pid : *children) {
      if (ended.contains(pid)) continue;
      const auto stat = read_process_entry(pid);
      if (!stat) return false;  // only we can have reaped it: it exists, but is not listed
      if (is_foreign(*stat, us)) continue;
      if (!stat->ended()) return false;
      ended.insert(pid);
      somebody_new = true;
    }
    if (!somebody_new) return true;
  }
  return false;
}

// ---- Ending

std::optional<Instant> Ending::step(Instant now) {
  if (state_ == State::gone || state_ == State::stuck) return std::nullopt;
  if (waits_to_signal_) return now + kLongestPause;
  if (!begun_) {
    waits_to_signal_ = options_.signal != 0 && !signal_first();
    if (waits_to_signal_) return now + kLongestPause;
    begun_ = true;
    looked_at_ = looks_next_ = now;
    if (options_.signal != 0) grace_left_ = options_.grace;
  }
  if (!first_kill_) count(now);
  waits_to_kill_ = grace_left_ <= Duration::zero();
  if (waits_to_kill_ && may_kill_) return kill(now);
  if (all_gone()) {
    state_ = State::gone;
    return std::nullopt;
  }
  if (waits_to_kill_) return now + kLongestPause;
  pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
  looks_next_ = now + std::min(pause_, grace_left_);
  return looks_next_;
}

// As Tree::signal(), but whoever says when may change their mind before each of them. To find out who they are may take
// longer than a leave lasts: that is done before it is asked for, and not again. False: not all have it yet.
bool Ending::signal_first() {
  const auto may = [&] { return !may_signal_now_ || may_signal_now_(); };
  for (; options_.to_tree && passes_ < Tree::kSignalPasses; ++passes_) {
    if (aimed_.empty()) {
      aimed_ = tree_.aim(options_.order, reached_);
      std::ranges::reverse(aimed_);
    }
    if (aimed_.empty()) break;
    for (; !aimed_.empty(); aimed_.pop_back()) {
      if (!may()) return false;
      Tree::Sent sent;
      Tree::send(aimed_.back(), options_.signal, sent);
      signalled_ += sent.reached;
    }
  }
  if (signalled_ != 0) return true;
  // To the root alone; or no listing shows it, but its handle works.
  if (root_.ended()) return true;
  if (!may()) return false;
  if (root_.signal(options_.signal)) signalled_ = 1;
  if (options_.to_tree && options_.signal != SIGKILL) (void)root_.signal(SIGCONT);
  return true;
}

void Ending::count(Instant now) {
  const Duration asked = looks_next_ - looked_at_;
  const Duration passed = now - std::exchange(looked_at_, now);
  if (passed <= Duration::zero() || grace_left_ <= Duration::zero()) return;
  const Duration counted = passed > asked + kLateness ? asked : passed;
  if (halted_ < options_.longest_halt && tree_.is_halted()) {
    halted_ += counted;
  } else {
    grace_left_ -= counted;
  }
}

std::optional<Instant> Ending::kill(Instant now) {
  const std::vector<ProcessEntry> members = tree_.members();
  if (!first_kill_) {
    const bool by_signal = options_.signal == 0;  // which is the first one
    const auto& may = by_signal ? may_signal_now_ : may_kill_now_;
    if (may && !may()) {
      (by_signal ? waits_to_signal_ : may_kill_) = by_signal;
      return now + kLongestPause;
    }
    first_kill_ = now;
    killed_ = members.size();
  }
  state_ = State::killing;
  tree_.kill_pass(members);
  if (!root_.ended()) (void)root_.signal(SIGKILL);  // its handle works where /proc does not
  if (all_gone()) {
    state_ = State::gone;
    return std::nullopt;
  }
  if (root_.ended() && !tree_.can_look()) {
    state_ = State::unproven;
    return std::nullopt;
  }
  left_ = tree_.members();
  bool newcomers = false;  // forked faster than we looked: strike again at once
  for (const ProcessEntry& one : left_) newcomers |= struck_.insert(one.id()).second;
  if (now - *first_kill_ >= options_.give_up) {
    state_ = State::stuck;
    return std::nullopt;
  }
  return newcomers ? now : now + kKillPause;
}

}  // namespace lull
