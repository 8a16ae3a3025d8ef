#include "sense/job.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"

namespace lull {
namespace {

constexpr double kShortest = 0.02;  // seconds that a rate is of, at least

std::optional<std::uint64_t> field(std::string_view text, std::string_view name) {
  for (const std::string_view line : split(text, '\n'))
    if (line.starts_with(name)) return to_unsigned(trim(line.substr(name.size())));
  return std::nullopt;
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
  if (!text) return false;
  constexpr std::string_view kField = "\nSigIgn:";
  const std::size_t at = text->find(kField);
  if (at == std::string::npos) return false;
  const std::string mask(trim(std::string_view(*text).substr(at + kField.size(), 24)));
  return (std::strtoull(mask.c_str(), nullptr, 16) >> (SIGCHLD - 1) & 1) != 0;
}

}  // namespace

JobSensor::Account JobSensor::account_of(const ProcessEntry& entry, bool outside) const {
  Account account{.start_ticks = entry.start_ticks,
                  .cpu_ticks = entry.cpu_ticks + entry.children_cpu_ticks,
                  .children_ticks = entry.children_cpu_ticks,
                  .parent = entry.parent,
                  .outside = outside};
  const auto text = read_file(AT_FDCWD, root_.proc + "/" + std::to_string(entry.pid) + "/io", 4096);
  if (!text) return account;
  const auto read = field(*text, "rchar:");
  const auto written = field(*text, "wchar:");
  account.io_known = read && written;
  account.read_bytes = read.value_or(0);
  account.written_bytes = written.value_or(0);
  return account;
}

void JobSensor::reset() {
  before_.clear();
  last_at_.reset();
  last_ = {};
  cgroup_before_.reset();
  last_wrote_.reset();
  sockets_.reset();
}

void JobSensor::add(const ProcessEntry& member, bool outside, Sums& sums) {
  if (member.ended() || now_.contains(member.pid)) return;
  const Account account = account_of(member, outside);
  const auto found = before_.find(member.pid);
  const bool same = found != before_.end() && found->second.start_ticks == account.start_ticks;
  const Account old = same ? found->second : Account{};
  (outside ? sums.outside : sums.cpu) += growth(account.cpu_ticks, old.cpu_ticks) / ticks_per_second();
  sums.children += growth(account.children_ticks, old.children_ticks) / ticks_per_second();
  if (account.io_known) {
    sums.bytes += growth(account.read_bytes, old.read_bytes) + growth(account.written_bytes, old.written_bytes);
    sums.wrote |= account.written_bytes > old.written_bytes;
  } else if (read_process_entry(member.pid, root_)) {  // it has not just ended: it is not ours to read
    sums.io_known = false;
  }
  now_.emplace(member.pid, account);
}

// Whether somebody is gone whose last work is in no account: its parent is not one of those who are followed, or
// waits for nobody, or got less than it had used already. `exact`: the tree itself is counted in another way.
bool JobSensor::vanished_uncounted(const Sums& sums, const JobMore& more, bool exact) const {
  double had = 0;
  double got = sums.children;
  double slack = 0;  // ticks are rounded
  for (const Reaped& one : more.orphans) got += one.cpu_seconds;
  for (const auto& [pid, account] : before_) {
    const auto now = now_.find(pid);
    if (now != now_.end() && now->second.start_ticks == account.start_ticks) continue;
    if (exact && !account.outside) continue;
    had += static_cast<double>(account.cpu_ticks) / ticks_per_second();
    slack += 2 / ticks_per_second();
    if (std::ranges::any_of(more.orphans, [&, who = pid](const Reaped& one) { return one.pid == who; })) continue;
    const bool followed = now_.contains(account.parent);
    if (followed ? ignores_children(root_, account.parent) : !before_.contains(account.parent)) return true;
  }
  return !exact && got + slack < had;
}

JobUsage JobSensor::sample(std::span<const ProcessEntry> members, Instant at, const JobMore& more) {
  Sums sums;
  now_.clear();
  for (const ProcessEntry& member : members) add(member, false, sums);
  for (const ProcessEntry& member : more.outside) add(member, true, sums);
  JobUsage usage;
  const bool exact = more.cgroup_cpu && cgroup_before_;
  usage.cpu_uncounted = vanished_uncounted(sums, more, exact);
  if (exact) {
    sums.cpu = growth(*more.cgroup_cpu, *cgroup_before_) / 1e6;
  } else {
    for (const Reaped& one : more.orphans) {
      const auto seen = before_.find(one.pid);
      const double known =
          seen != before_.end() ? static_cast<double>(seen->second.cpu_ticks) / ticks_per_second() : 0.0;
      sums.cpu += std::max(0.0, one.cpu_seconds - known);
    }
  }
  std::swap(before_, now_);

  if (count_sockets_) {
    std::vector<pid_t> pids;
    for (const auto& [pid, account] : before_) pids.push_back(pid);
    SocketTraffic traffic = sockets_.sample(pids);
    sums.bytes += traffic.received + traffic.sent;
    sums.wrote |= traffic.sent > 0 && last_at_.has_value();
    usage.io_uncounted = !traffic.counted;
    usage.uncounted_socket = std::move(traffic.uncounted);
  }

  usage.io_unreadable = !sums.io_known;
  if (sums.wrote || !last_wrote_ || !sums.io_known) last_wrote_ = at;
  if (sums.io_known) usage.quiet_seconds = std::chrono::duration<double>(at - *last_wrote_).count();
  if (last_at_ && at > *last_at_) {
    Stretch now{.seconds = std::chrono::duration<double>(at - *last_at_).count()};
    if (!usage.cpu_uncounted) now.cpu = sums.cpu + sums.outside;
    if (sums.io_known && !usage.io_uncounted) now.bytes = sums.bytes;
    const Stretch before = std::exchange(last_, now);
    if (now.seconds < kShortest && before.seconds > 0)
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
