#include "act/tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <unordered_set>

#include "base/errand.h"
#include "base/text.h"

namespace lull {
namespace {

using namespace std::chrono_literals;

constexpr int kSignalPasses = 4;
constexpr int kStrikes = 200;
constexpr Duration kLongestPause = 50ms;
constexpr Duration kKillPause = 2ms;

// Our own children, in one read; zombies included. Nothing where the kernel does not tell.
std::optional<std::vector<pid_t>> direct_children() {
  const std::string us = std::to_string(::getpid());
  const auto list = read_file("/proc/self/task/" + us + "/children");
  if (!list) return std::nullopt;
  std::vector<pid_t> pids;
  for (const std::string_view word : split(*list, ' '))
    if (const auto pid = to_pid(word)) pids.push_back(*pid);
  return pids;
}

constexpr Duration kEnvironmentLimit = 200ms;

// By this process, beside whatever job: an orphan may be theirs from then on.
bool helpers_were_started = false;

// Started by us beside the job, or left behind by something that was. The kernel looks into the memory of the process
// for its environment, which may hang: one that does not tell in time counts as the job's.
bool is_marked_helper(pid_t pid, pid_t us) {
  const auto environment =
      ask_aside([&] { return read_file("/proc/" + std::to_string(pid) + "/environ").value_or(std::string()); },
                kEnvironmentLimit);
  if (!environment) return false;
  const std::string mark = std::string(kHelperMark) + "=" + std::to_string(us);
  const auto at = environment->find(mark);
  if (at == std::string::npos) return false;
  const std::size_t end = at + mark.size();
  return (at == 0 || (*environment)[at - 1] == '\0') && (end == environment->size() || (*environment)[end] == '\0');
}

}  // namespace

Tree Tree::of_job(const Process& root, const Cgroup* cgroup, std::set<Name> earlier) {
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

Result<Tree> Tree::of_group(pid_t group) {
  Tree tree;
  tree.kind_ = Kind::group;
  tree.root_pid_ = group;
  for (const ProcessEntry& one : read_all_processes())
    if (one.group == group && !one.ended()) tree.witnesses_.emplace(one.pid, one.start_ticks);
  if (tree.witnesses_.empty()) return fail(ESRCH, "process group " + std::to_string(group));
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
  const auto where = read_file("/proc/self/cgroup");
  if (!own || !where || where->find("0::/\n") != std::string::npos)
    return fail("this is no container: neither a pid namespace nor a cgroup of its own");
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
  for (const ProcessEntry& one : all) {
    if (one.ended() || mine.contains(one.pid)) continue;
    const bool in = kind_ == Kind::group           ? one.group == root_pid_
                    : kind_ == Kind::pid_namespace ? true
                                                   : inside.contains(one.pid);
    if (!in) continue;
    witnessed |= witnesses_.contains({one.pid, one.start_ticks});
    found.push_back(one);
  }
  if (kind_ == Kind::group && !witnessed) found.clear();
  return found;
}

void Tree::exclude(const Process& helper) {
  foreign_.emplace(helper.pid(), helper.start_ticks());
  helpers_were_started = true;
}

bool Tree::is_foreign(const ProcessEntry& one, pid_t us) const {
  if (foreign_.contains({one.pid, one.start_ticks}) || is_own_process(one.pid, one.start_ticks)) return true;
  if (one.parent != us || one.pid == root_pid_) return false;
  // Came to us as an orphan. Older than the job: not of it. With a cgroup that
  // the job was born in, those outside of it are somebody else's orphans.
  if (one.start_ticks < root_start_) return true;
  if (cgroup_ != nullptr) return true;
  if (!helpers_were_started) return false;
  // Asked once: what a process has in its environment when it comes to us, it has from whom it came.
  const auto [known, fresh] = marked_.try_emplace({one.pid, one.start_ticks}, false);
  if (fresh) known->second = is_marked_helper(one.pid, us);
  return known->second;
}

std::vector<ProcessEntry> Tree::members(const Root& root) const {
  const pid_t us = ::getpid();
  const std::vector<ProcessEntry> all = read_all_processes(root);
  if (kind_ != Kind::descent) return others(all);
  std::vector<ProcessEntry> tree;
  std::unordered_set<pid_t> seen;
  const auto add = [&](const ProcessEntry& one) {
    if (one.pid != us && !one.ended() && seen.insert(one.pid).second) tree.push_back(one);
  };
  const auto skip = [&](const ProcessEntry& one) {
    if (one.pid == root_pid_) return one.start_ticks != root_start_;  // the number is somebody else's now
    if (!adopts_orphans_ && one.pid == us) return true;
    return adopts_orphans_ && is_foreign(one, us);
  };
  for (const ProcessEntry& one : descendants(all, adopts_orphans_ ? us : root_pid_, skip)) add(one);
  if (cgroup_ == nullptr) return tree;
  for (const pid_t pid : cgroup_->members()) {
    const auto found = std::ranges::lower_bound(all, pid, {}, &ProcessEntry::pid);
    if (found != all.end() && found->pid == pid) {
      add(*found);
    } else if (const auto born_since = read_process_entry(pid, root)) {
      add(*born_since);
    }
  }
  return tree;
}

bool Tree::contains(pid_t pid) const {
  const pid_t us = ::getpid();
  if (cgroup_ != nullptr) {
    const auto where = read_file("/proc/" + std::to_string(pid) + "/cgroup");
    const std::string name = cgroup_->path().substr(cgroup_->path().rfind('/'));
    if (where && where->find(name) != std::string::npos) return true;
  }
  constexpr int kDeepest = 1024;
  for (int i = 0; i < kDeepest && pid > 1; ++i) {
    const auto entry = read_process_entry(pid);
    if (!entry) return false;
    if (pid == root_pid_) return entry->start_ticks == root_start_;
    if (adopts_orphans_ && is_foreign(*entry, us)) return false;
    if (adopts_orphans_ && entry->parent == us) return true;
    pid = entry->parent;
  }
  return false;
}

Tree::Sent Tree::signal(int number, SignalOrder order) const {
  Sent sent;
  std::set<Name> done;
  for (int pass = 0; pass < kSignalPasses; ++pass) {
    std::vector<ProcessEntry> now = members();
    std::erase_if(now, [&](const ProcessEntry& one) { return done.contains({one.pid, one.start_ticks}); });
    if (now.empty()) break;
    if (order == SignalOrder::deepest_first) std::ranges::reverse(now);
    for (const ProcessEntry& one : now) {
      done.emplace(one.pid, one.start_ticks);
      const auto process = Process::open(one);
      if (!process) continue;
      const auto result = process->signal(number);
      if (result) {
        ++sent.reached;
      } else if (result.error().errno_value == EPERM) {
        ++sent.refused;
      }
      // A stopped process would keep the signal in its pocket.
      if (number != SIGKILL && number != SIGCONT) (void)process->signal(SIGCONT);
    }
  }
  return sent;
}

// Everyone alive in the job has an ancestor, or is one, that is our own child: a
// parent that exits leaves its children to us. Our children cannot be replaced by
// others of the same number, since only we reap them and do not do so in here.
// True: nobody is left but the `ended`, who wait to be reaped.
bool Tree::strike_orphans(std::set<pid_t>& ended) const {
  const auto children = direct_children();
  if (!children) return false;
  const pid_t us = ::getpid();
  bool quiet = true;
  for (const pid_t pid : *children) {
    if (ended.contains(pid)) continue;
    const auto stat = read_process_entry(pid);
    if (!stat || is_foreign(*stat, us)) continue;
    quiet = false;
    if (stat->ended()) {
      ended.insert(pid);  // what it left behind shows in the next listing
    } else if (const auto process = Process::open(*stat)) {
      (void)process->signal(SIGKILL);
    }
  }
  return quiet;
}

void Tree::kill_pass() const {
  if (cgroup_ != nullptr) (void)cgroup_->kill();
  for (const ProcessEntry& one : members())
    if (const auto process = Process::open(one)) (void)process->signal(SIGKILL);
  if (cgroup_ != nullptr || !adopts_orphans_) return;
  std::set<pid_t> ended;
  for (int i = 0; i < kStrikes; ++i)
    if (strike_orphans(ended)) return;
}

bool Tree::gone() const {
  if (cgroup_ != nullptr && cgroup_->populated()) return false;
  std::vector<ProcessEntry> left = members();
  // The init of our own namespace cannot be killed from inside; it ends when it sees fit.
  if (kind_ == Kind::pid_namespace) std::erase_if(left, [](const ProcessEntry& one) { return one.pid == 1; });
  if (!left.empty()) return false;
  if (kind_ == Kind::pid_namespace) return true;
  if (cgroup_ != nullptr) return true;
  if (!adopts_orphans_) return members().empty();  // a second look
  const pid_t us = ::getpid();
  std::set<pid_t> ended;
  // Two listings that agree: one that was alive in the first may since have handed over.
  for (int i = 0; i < 2; ++i) {
    const auto children = direct_children();
    if (!children) return members().empty();
    bool news = false;
    for (const pid_t pid : *children) {
      if (ended.contains(pid)) continue;
      const auto stat = read_process_entry(pid);
      if (!stat || is_foreign(*stat, us)) continue;
      if (!stat->ended()) return false;
      ended.insert(pid);
      news = true;
    }
    if (!news) return true;
  }
  return false;
}

std::optional<Instant> Ending::step(Instant now) {
  if (state_ == State::gone || state_ == State::stuck) return std::nullopt;
  if (!begun_) {
    begun_ = true;
    kill_at_ = now;
    if (options_.signal != 0) {
      if (options_.to_tree) {
        signalled_ = tree_.signal(options_.signal, options_.order).reached;
      } else if (root_.signal(options_.signal)) {
        signalled_ = 1;
      }
      kill_at_ = now + options_.grace;
    }
  }
  if (now >= *kill_at_) return kill(now);
  if (tree_.gone()) {
    state_ = State::gone;
    return std::nullopt;
  }
  pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
  return std::min(now + pause_, *kill_at_);
}

std::optional<Instant> Ending::kill(Instant now) {
  if (!first_kill_) {
    first_kill_ = now;
    killed_ = tree_.members().size();
  }
  state_ = State::killing;
  tree_.kill_pass();
  if (tree_.gone()) {
    state_ = State::gone;
    return std::nullopt;
  }
  left_ = tree_.members();
  bool newcomers = false;  // forked faster than we looked: strike again at once
  for (const ProcessEntry& one : left_) newcomers |= struck_.emplace(one.pid, one.start_ticks).second;
  if (now - *first_kill_ >= options_.give_up) {
    state_ = State::stuck;
    return std::nullopt;
  }
  return newcomers ? now : now + kKillPause;
}

}  // namespace lull
