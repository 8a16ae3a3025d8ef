#include "sense/job.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <unordered_set>
#include <vector>

#include "base/text.h"

namespace lull {
namespace {

constexpr double kShortestRateSpan = 0.02;  // seconds that a rate is of, at least

std::optional<std::uint64_t> field(std::string_view text, std::string_view name) {
  return to_unsigned(status_field(text, name).value_or(""));
}

double ticks_per_second() {
  static const auto rate = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return rate;
}

// How much a counter grew; one that was not there before grew by all of it.
double growth(std::uint64_t now, std::uint64_t before) { return now > before ? static_cast<double>(now - before) : 0; }

// Whoever ignores SIGCHLD has children that leave without a trace in any account.
bool ignores_children(const Root& root, pid_t pid) {
  const auto text = read_file(AT_FDCWD, root.proc + "/" + std::to_string(pid) + "/status", 16384);
  return text && (status_mask(*text, "SigIgn").value_or(0) >> (SIGCHLD - 1) & 1) != 0;
}

}  // namespace

JobSensor::Account JobSensor::account_of(const ProcessEntry& entry, bool outside) const {
  Account account{.start_ticks = entry.start_ticks,
                  .cpu_ticks = entry.cpu_ticks + entry.children_cpu_ticks,
                  .children_ticks = entry.children_cpu_ticks,
                  .parent = entry.parent,
                  .ended = entry.ended(),
                  .outside = outside};
  const auto text = read_file(AT_FDCWD, root_.proc + "/" + std::to_string(entry.pid) + "/io", 4096);
  if (!text) return account;
  // What comes of a mapped file or goes there is in no system call, what comes of the page cache on no disk.
  const auto read = field(*text, "rchar");
  const auto written = field(*text, "wchar");
  const auto from_disk = field(*text, "read_bytes");
  const auto to_disk = field(*text, "write_bytes");
  account.io_known = read && written && from_disk && to_disk;
  account.read_bytes = read.value_or(0) + from_disk.value_or(0);
  account.written_bytes = written.value_or(0) + to_disk.value_or(0);
  return account;
}

void JobSensor::reset() {
  before_.clear();
  last_at_.reset();
  last_ = {};
  cgroup_before_.reset();
  last_wrote_.reset();
  last_born_.reset();
  sockets_.reset();
}

void JobSensor::add(const ProcessEntry& member, bool outside, Sums& sums) {
  if (now_.contains(member.pid)) return;
  const Account account = account_of(member, outside);
  const auto found = before_.find(member.pid);
  const bool same = found != before_.end() && found->second.start_ticks == account.start_ticks;
  const Account old = same ? found->second : Account{};
  const double worked = growth(account.cpu_ticks, old.cpu_ticks) / ticks_per_second();
  const double children = growth(account.children_ticks, old.children_ticks) / ticks_per_second();
  // One that came back into the cgroup since has worked elsewhere until then.
  const bool was_outside = outside || old.outside;
  (was_outside ? sums.outside : sums.cpu) += worked;
  if (!was_outside) sums.own += std::max(0.0, worked - children);
  sums.children += children;
  if (account.io_known) {
    sums.bytes += growth(account.read_bytes, old.read_bytes) + growth(account.written_bytes, old.written_bytes);
    sums.wrote |= account.written_bytes > old.written_bytes;
  } else if (account.ended) {  // root alone may read that: it wrote nothing since it ended
    sums.untold |= !old.ended;
  } else if (read_process_entry(member.pid, root_)) {  // it has not just ended: it is not ours to read
    sums.io_known = false;
  }
  now_.emplace(member.pid, account);
}

// Whether a process has ended whose last work is in no account: its parent is not followed, or does not wait for
// children, or got less than it had used already. `exact`: the tree itself is counted in another way.
bool JobSensor::vanished_uncounted(const Sums& sums, const JobMore& more, bool exact) const {
  double had = 0;
  double got = sums.children;
  double slack = 0;  // ticks are rounded
  for (const Reaped& one : more.orphans) got += one.cpu_seconds;
  for (const auto& [pid, account] : before_) {
    if (is_there(pid, account) || (exact && !account.outside)) continue;
    had += static_cast<double>(account.cpu_ticks) / ticks_per_second();
    slack += 2 / ticks_per_second();
    if (std::ranges::any_of(more.orphans, [&, who = pid](const Reaped& one) { return one.pid == who; })) continue;
    const bool followed = now_.contains(account.parent);
    if (followed ? ignores_children(root_, account.parent) : !before_.contains(account.parent)) return true;
  }
  return got + slack < had;
}

bool JobSensor::is_there(pid_t pid, const Account& account) const {
  const auto now = now_.find(pid);
  return now != now_.end() && now->second.start_ticks == account.start_ticks;
}

// Whether a process has ended whose last bytes are in no account: they are in that of a parent that waited for it.
bool JobSensor::somebody_left_untold() const {
  return std::ranges::any_of(before_, [&](const auto& one) {
    const auto& [pid, account] = one;
    if (is_there(pid, account)) return false;
    const auto now = read_process_entry(pid, root_);
    if (now && now->start_ticks == account.start_ticks) return true;  // it was not waited for yet
    // If its parent ended as well it became our child, and we are told; that of another process went to init.
    return now_.contains(account.parent) ? ignores_children(root_, account.parent) : !before_.contains(account.parent);
  });
}

// One whose children may have started and ended since the previous sample without a trace. If no process started on the
// machine since (the kernel tells the newest pid), none did.
std::optional<pid_t> JobSensor::loses_children() {
  std::optional<std::uint64_t> newest;
  if (const auto text = read_file(AT_FDCWD, root_.proc + "/loadavg", 256))
    newest = to_unsigned(trim(split(*text, ' ').back()));
  const bool none_born = newest && newest == last_born_;
  last_born_ = newest;
  if (none_born || !last_at_) return std::nullopt;
  for (const auto& [pid, account] : now_)
    if (ignores_children(root_, pid)) return pid;
  return std::nullopt;
}

double JobSensor::unseen_of(const Reaped& orphan) const {
  const auto seen = before_.find(orphan.pid);
  const double known = seen != before_.end() ? static_cast<double>(seen->second.cpu_ticks) / ticks_per_second() : 0.0;
  return std::max(0.0, orphan.cpu_seconds - known);
}

// Seconds of the tree beyond those that its cgroup `counted`. One that was moved to another cgroup works there; when
// it ends, the rest of its work is in the account of whoever waited for it. One that was moved and ended between two
// samples shows only there: so the accounts of the tree, by themselves, are a floor.
double JobSensor::beside_cgroup(const Sums& sums, const JobMore& more, double counted) const {
  struct Inherited {
    double seconds = 0;     // of children that ended, beyond what was seen of them before
    bool of_moved = false;  // one of them was outside
  };
  std::unordered_map<pid_t, Inherited> heirs;
  for (const auto& [pid, account] : now_) {
    const auto old = before_.find(pid);
    const bool same = old != before_.end() && old->second.start_ticks == account.start_ticks;
    if (account.outside || (same && old->second.outside)) continue;  // all of its account is counted anyway
    heirs[pid].seconds = growth(account.children_ticks, same ? old->second.children_ticks : 0) / ticks_per_second();
  }
  for (const auto& [pid, account] : before_) {
    if (is_there(pid, account)) continue;
    pid_t heir = account.parent;
    for (auto up = before_.find(heir); up != before_.end() && !is_there(heir, up->second); up = before_.find(heir))
      heir = up->second.parent;
    const auto found = heirs.find(heir);
    if (found == heirs.end()) continue;
    found->second.seconds -= static_cast<double>(account.cpu_ticks) / ticks_per_second();
    found->second.of_moved |= account.outside;
  }
  double beside = 0;
  double floor = sums.own;
  for (const auto& [pid, one] : heirs) {
    floor += std::max(0.0, one.seconds);
    if (one.of_moved) beside += std::max(0.0, one.seconds);
  }
  for (const Reaped& one : more.orphans) {
    floor += unseen_of(one);
    const auto seen = before_.find(one.pid);
    if (seen != before_.end() && seen->second.outside) beside += unseen_of(one);
  }
  return std::max(beside, floor - counted);
}

JobUsage JobSensor::sample(std::span<const ProcessEntry> members, Instant at, const JobMore& more) {
  Sums sums;
  now_.clear();
  const std::unordered_set<pid_t> inside(more.in_cgroup.begin(), more.in_cgroup.end());
  const auto moved = [&](pid_t pid) { return more.cgroup_cpu && !inside.contains(pid); };
  for (const ProcessEntry& member : members) add(member, !member.ended() && moved(member.pid), sums);
  for (const ProcessEntry& member : more.outside) add(member, true, sums);
  JobUsage usage;
  const bool exact = more.cgroup_cpu && cgroup_before_;
  usage.cpu_uncounted = vanished_uncounted(sums, more, exact);
  if (exact) {
    sums.cpu = growth(*more.cgroup_cpu, *cgroup_before_) / 1e6;
    sums.cpu += beside_cgroup(sums, more, sums.cpu);
  } else {
    for (const Reaped& one : more.orphans) sums.cpu += unseen_of(one);
  }
  usage.io_uncounted = !more.orphans.empty() || sums.untold || somebody_left_untold();
  if (count_sockets_) {
    if (const auto parent = loses_children()) {
      usage.io_uncounted = true;
      usage.uncounted = "process " + std::to_string(*parent) + " ignores the end of its children (SIGCHLD)";
    }
    std::vector<pid_t> pids;
    for (const auto& [pid, account] : now_)
      if (!account.ended) pids.push_back(pid);
    SocketTraffic traffic = sockets_.sample(pids);
    sums.bytes += traffic.received + traffic.sent;
    sums.wrote |= traffic.sent > 0 && last_at_.has_value();
    usage.io_uncounted |= !traffic.counted;
    if (!traffic.uncounted.empty()) usage.uncounted = std::move(traffic.uncounted);
  }
  std::swap(before_, now_);

  usage.io_unreadable = !sums.io_known;
  // What was not counted may have been written.
  if (sums.wrote || !last_wrote_ || !sums.io_known || usage.io_uncounted) last_wrote_ = at;
  if (sums.io_known) usage.quiet_seconds = std::chrono::duration<double>(at - *last_wrote_).count();
  if (last_at_ && at > *last_at_) {
    Stretch now{.seconds = std::chrono::duration<double>(at - *last_at_).count()};
    if (!usage.cpu_uncounted) now.cpu = sums.cpu + sums.outside;
    if (sums.io_known && !usage.io_uncounted) now.bytes = sums.bytes;
    const Stretch before = std::exchange(last_, now);
    if (now.seconds < kShortestRateSpan && before.seconds > 0)
      now = {now.seconds + before.seconds, now.cpu + before.cpu, now.bytes + before.bytes};
    usage.cpu_percent = 100 * now.cpu / now.seconds;
    usage.io_bytes_per_second = now.bytes / now.seconds;
  }
  last_at_ = at;
  cgroup_before_ = more.cgroup_cpu;
  return usage;
}

void add_to(Facts& facts, const JobUsage& usage) {
  const auto set = [&](Metric metric, double value) {
    if (std::isnan(value)) {
      facts.miss(metric, Absence::no_baseline);
    } else {
      facts.set(metric, value);
    }
  };
  set(Metric::cpu, usage.cpu_percent);
  set(Metric::io, usage.io_bytes_per_second);
  set(Metric::quiet, usage.quiet_seconds);
  if (usage.cpu_uncounted) facts.miss(Metric::cpu, Absence::not_covered);
  if (usage.io_uncounted) {  // what it may have written there was not seen either
    facts.miss(Metric::io, Absence::not_covered);
    facts.miss(Metric::quiet, Absence::not_covered);
  }
  if (!usage.io_unreadable) return;
  facts.miss(Metric::io, Absence::no_permission);
  facts.miss(Metric::quiet, Absence::no_permission);
}

}  // namespace lull
