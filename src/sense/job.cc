#include "sense/job.h"

#include <unistd.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/text.h"

namespace lull {
namespace {

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

}  // namespace

JobSensor::Account JobSensor::account_of(const ProcessEntry& entry) const {
  Account account{entry.start_ticks, entry.cpu_ticks + entry.children_cpu_ticks};
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
  cgroup_before_.reset();
  last_wrote_.reset();
}

JobUsage JobSensor::sample(std::span<const ProcessEntry> members, Instant at, std::optional<std::uint64_t> cgroup_cpu) {
  double cpu_seconds = 0;
  double bytes = 0;
  bool io_known = true;
  bool wrote = false;
  now_.clear();
  for (const ProcessEntry& member : members) {
    if (member.ended()) continue;
    const Account account = account_of(member);
    const auto found = before_.find(member.pid);
    const bool same = found != before_.end() && found->second.start_ticks == account.start_ticks;
    const Account old = same ? found->second : Account{};
    cpu_seconds += growth(account.cpu_ticks, old.cpu_ticks) / ticks_per_second();
    if (account.io_known) {
      bytes += growth(account.read_bytes, old.read_bytes) + growth(account.written_bytes, old.written_bytes);
      wrote |= account.written_bytes > old.written_bytes;
    } else if (read_process_entry(member.pid, root_)) {  // it has not just ended: it is not ours to read
      io_known = false;
    }
    now_.emplace(member.pid, account);
  }
  std::swap(before_, now_);
  if (cgroup_cpu && cgroup_before_) cpu_seconds = growth(*cgroup_cpu, *cgroup_before_) / 1e6;

  JobUsage usage;
  usage.io_unreadable = !io_known;
  if (wrote || !last_wrote_ || !io_known) last_wrote_ = at;
  if (io_known) usage.quiet_seconds = std::chrono::duration<double>(at - *last_wrote_).count();
  if (last_at_ && at > *last_at_) {
    const double seconds = std::chrono::duration<double>(at - *last_at_).count();
    usage.cpu_percent = 100 * cpu_seconds / seconds;
    if (io_known) usage.io_bytes_per_second = bytes / seconds;
  }
  last_at_ = at;
  cgroup_before_ = cgroup_cpu;
  return usage;
}

void fill_job(Snapshot& snapshot, const JobUsage& usage) {
  const auto set = [](Reading& reading, Metric metric, double value) {
    if (std::isnan(value)) {
      reading.miss(metric, Absence::no_baseline);
    } else {
      reading.set(metric, value);
    }
  };
  for (Reading& reading : snapshot.readings) {
    set(reading, Metric::cpu, usage.cpu_percent);
    set(reading, Metric::io, usage.io_bytes_per_second);
    set(reading, Metric::quiet, usage.quiet_seconds);
    if (usage.io_unreadable) {
      reading.miss(Metric::io, Absence::no_permission);
      reading.miss(Metric::quiet, Absence::no_permission);
    }
  }
}

}  // namespace lull
