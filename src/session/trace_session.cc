#include "session/trace_session.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "base/users.h"
#include "gpu/snapshot.h"
#include "rule/timeline.h"
#include "sense/select.h"
#include "trace/history.h"

namespace lull {
namespace {

using std::chrono_literals::operator""s;

constexpr Duration kClockSlack = 2s;  // the wall clock may wander so far before we mention it
constexpr int kGapsSaid = 3;
constexpr unsigned kMostParts = 9;                             // files of one day
constexpr Duration kLongestRepack = std::chrono::minutes(30);  // of all days that are not yet

SamplingSettings sampling_of(const TraceSettings& settings) {
  SamplingSettings sampling;
  sampling.sampling.want_only(settings.layout.metrics);
  if (settings.layout.who) sampling.sampling.processes = sampling.sampling.process_info = true;
  sampling.every = settings.every;
  sampling.length = settings.length;
  struct stat status{};
  if (settings.to_stdout() && ::fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode))
    sampling.reader = STDOUT_FILENO;
  return sampling;
}

// "slurm:123"; a tree or a lease names no job here, since replay tells those by themselves.
std::string job_cell(const std::string& job) {
  for (const std::string_view kind : {"slurm:", "pod:", "container:"})
    if (job.starts_with(kind)) return one_word(job);
  return {};
}

std::string joined(const std::set<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

}  // namespace

trace::UserCells user_cells(const std::string& host, const GpuUse& use, const Reading& reading,
                            const std::vector<LeaseInfo>& leases, const UserNames& before, UserNames& now) {
  trace::UserCells cells;
  cells.host = host;
  const LeaseInfo* const lease = lease_of(use.device, leases);
  if (lease != nullptr) cells.lease = one_word(lease->record.id);
  if (!reading.processes) return cells;
  std::set<std::string> users;
  std::set<std::string> jobs;
  std::uint64_t most = 0;
  bool all_named = true;
  // A subordinate uid is its user's, as for a watcher.
  std::map<uid_t, std::string> owners;
  const auto owner = [&](uid_t user) {
    const auto [known, fresh] = owners.try_emplace(user);
    if (fresh) known->second = one_word(user_name(owner_of(user)));
    return known->second;
  };
  for (const GpuProcess& process : use.processes) {
    if (process.mps_server) continue;
    cells.pids += (cells.pids.empty() ? "" : " ") + std::to_string(process.pid);
    UserName name;
    if (process.info != nullptr)
      name = {process.info->start_ticks, process.info->uid ? owner(*process.info->uid) : one_word(process.info->user),
              short_command(process.info->arguments, process.info->name), job_cell(process.job)};
    else if (const auto known = before.find(process.pid);
             known != before.end() && (process.start_ticks == 0 || process.start_ticks == known->second.start_ticks))
      name = known->second;
    all_named = all_named && !name.job.empty();
    if (!name.job.empty()) jobs.insert(name.job);
    if (name.user.empty()) continue;
    users.insert(name.user);
    now[process.pid] = name;
    // What most of the memory belongs to names the row.
    if (cells.command.empty() || process.memory_bytes.value_or(0) > most) cells.command = name.command;
    most = std::max(most, process.memory_bytes.value_or(0));
  }
  if (cells.pids.empty()) {
    // If the driver may leave processes out, an empty list is unknown.
    if (!reading.processes_hidden) cells.users = cells.pids = trace::kNobodyText;
    return cells;
  }
  if (lease != nullptr && users.empty()) users.insert(owner(lease->owner));
  cells.users = joined(users);
  // A name is a job's only where it is that of all who are here.
  if (all_named && jobs.size() == 1)
    cells.job = *jobs.begin();
  else if (jobs.empty())
    cells.job = cells.lease;
  return cells;
}

TraceSession::TraceSession(TraceSettings settings, World& world, Say say)
    : settings_(std::move(settings)),
      world_(world),
      say_(std::move(say)),
      sampling_(sampling_of(settings_), world, [this](const Snapshot& snapshot) { return take(snapshot); }),
      repacking_(world.loop()) {
  if (settings_.signals.empty()) return;
  own_.emplace(world, settings_.signals, settings_.every);
  own_->on_note = [this](const std::string& text) { say_(text); };
  own_->ask();
}

SessionEnd TraceSession::run() {
  SessionEnd end = sampling_.run();
  quiet_ = quiet_ || sampling_.reader_left();
  if (!log_ || !end.complaint.empty() || (end.status != 0 && end.signal == 0)) {
    if (!end.complaint.empty()) report_state(trace::RecorderState::Kind::failed, end.complaint);
    return end;
  }
  SessionEnd finished = finish();
  report_state(finished.status == 0 ? trace::RecorderState::Kind::stopped : trace::RecorderState::Kind::failed,
               finished.complaint);
  return finished.status == 0 ? end : finished;
}

std::optional<SessionEnd> TraceSession::take(const Snapshot& snapshot) {
  for (const SamplingCosts::Note& note : costs_.see(snapshot, settings_.every)) say_(note.text);
  if (own_) own_->ask();
  if (!log_)
    if (auto end = begin(snapshot)) return end;
  return add(snapshot);
}

// The first snapshot tells who is there. No file is made before that is known.
std::optional<SessionEnd> TraceSession::begin(const Snapshot& first) {
  if (first.inventory->devices.empty()) {
    const bool driver = first.driver.absence == Absence::none;
    return SessionEnd{kExitFailure, driver ? "there is no GPU to record" : printable(first.driver.text())};
  }
  if (auto chosen = select_devices(settings_.gpus.empty() ? "all" : settings_.gpus, *first.inventory); !chosen)
    return SessionEnd{kExitUsage, chosen.error().message()};
  if (!settings_.history.empty()) {
    auto opened = open_history();
    if (opened) opened = open_day(trace::local_day(first.wall));
    if (!opened) return SessionEnd{kExitFailure, opened.error().message()};
  } else {
    auto log = TraceLog::open(settings_.output, settings_.layout);
    if (!log) return SessionEnd{kExitFailure, log.error().message()};
    log_ = *std::move(log);
  }
  if (!log_->note().empty()) say_(log_->note());
  log_->begin(first);
  said_anchor_ = log_->anchor();
  return std::nullopt;
}

Result<> TraceSession::open_history() {
  const std::string& folder = settings_.history;
  // Not readable for all users: it says who used which GPU.
  if (::mkdir(folder.c_str(), 0750) != 0 && errno != EEXIST) return fail(errno, "make " + folder);
  const std::string path = trace::lock_path(folder);
  Fd lock = TRY(open_file(path, O_RDWR | O_CREAT, 0640));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return fail(printable(folder) + ": another `lull record` writes there");
    return fail(errno, "lock " + path);
  }
  history_lock_ = std::move(lock);
  return {};
}

// A file that cannot be continued (another version's columns, damaged) stays as it is; the day goes on in another.
Result<> TraceSession::open_day(trace::Day day) {
  day_ = day;
  for (unsigned part = 1;; ++part) {
    const std::string path = settings_.history + "/" + trace::day_file_name(day, part);
    auto log = TraceLog::open(path, settings_.layout, true);
    if (!log && (log.error().errno_value != 0 || part >= kMostParts)) return std::unexpected(std::move(log).error());
    if (!log) {
      say_(log.error().message() + "; the day goes on in another file");
      continue;
    }
    log_ = *std::move(log);
    break;
  }
  const auto removed = trace::remove_old_days(settings_.history, settings_.days_kept);
  if (!removed) say_(removed.error().message());  // the recording goes on
  repack_days();
  return {};
}

// In another process: the samples do not wait for it.
void TraceSession::repack_days() {
  repacking_.start(
      [folder = settings_.history, today = day_]() -> Result<std::string> {
        TRY(trace::repack_days(folder, today));
        return std::string();
      },
      {.time = kLongestRepack},
      [this](const Result<std::string>& done) {
        if (!done) say_("a day is not packed anew: " + done.error().message());
      });
}

// For whoever looks at the folder. If it cannot be written, recording goes on.
void TraceSession::report_state(trace::RecorderState::Kind kind, const std::string& why) {
  if (!history_lock_) return;
  const WallTime now = world_.clock().wall();
  (void)trace::write_state(history_lock_.get(), {.kind = kind, .since = now, .every = settings_.every, .why = why});
}

// At local midnight, or where the clock was set: the next file, and wall time counted anew.
Result<> TraceSession::turn_day(const Snapshot& snapshot) {
  const Duration anchor = snapshot.wall.time_since_epoch() - snapshot.at.time_since_epoch();
  const Duration leap = anchor - log_->anchor();
  const trace::Day today = trace::local_day(snapshot.wall);
  if (std::chrono::abs(leap) > kClockSlack) say_(fmt::format("the clock was set by {}", format_duration(leap)));
  if (today != day_) {
    TRY(log_->close());
    TRY(open_day(today));
    if (!log_->note().empty()) say_(log_->note());
    log_->begin(snapshot);
  } else if (std::chrono::abs(leap) > kClockSlack) {
    log_->begin(snapshot);
  }
  said_anchor_ = log_->anchor();
  return {};
}

void TraceSession::choose(const Snapshot& snapshot) {
  if (snapshot.inventory == inventory_) return;
  inventory_ = snapshot.inventory;
  for (const std::string& text : inventory_->warnings())
    if (warned_.insert(text).second) say_(text);
  if (auto chosen = select_devices(settings_.gpus.empty() ? "all" : settings_.gpus, *inventory_)) {
    devices_ = *std::move(chosen);
  } else {
    say_(chosen.error().message());  // the GPU may come back: until then there is nothing to write
    devices_.clear();
  }
}

void TraceSession::mention_oddities(const Snapshot& snapshot) {
  if (last_ && snapshot.at - *last_ > longest_gap(settings_.every) && ++gaps_ <= kGapsSaid)
    say_(fmt::format("no sample for {} before {}{}", format_duration(snapshot.at - *last_),
                     format_rfc3339(WallTime(snapshot.at.time_since_epoch() + log_->anchor())),
                     gaps_ == kGapsSaid ? "; further gaps are only counted" : ""));
  last_ = snapshot.at;
  const Duration anchor = snapshot.wall.time_since_epoch() - snapshot.at.time_since_epoch();
  if (std::chrono::abs(anchor - log_->anchor()) > kClockSlack &&
      std::chrono::abs(anchor - said_anchor_) > kClockSlack) {
    say_(fmt::format("the clock was set by {}; the trace goes on by the old one",
                     format_duration(anchor - log_->anchor())));
    said_anchor_ = anchor;
  }
  if (snapshot.driver.absence != driver_) {
    driver_ = snapshot.driver.absence;
    if (driver_ != Absence::none) say_(printable(snapshot.driver.text()) + "; rows are empty until it is back");
  }
}

// An end: there is no going on.
std::optional<SessionEnd> TraceSession::add(const Snapshot& snapshot) {
  choose(snapshot);
  if (!settings_.history.empty())
    if (const auto turned = turn_day(snapshot); !turned) return failed(turned.error());
  mention_oddities(snapshot);
  cells_.clear();
  if (settings_.layout.who) {
    GpuUsers& users = *world_.users();
    const std::vector<GpuUse> uses = users.look(snapshot, UserDetail::jobs);
    const std::vector<LeaseInfo>& leases = users.leases();
    // What is unknown is left out of the trace: recording goes on.
    if (!users.trouble().empty() && users.trouble() != trouble_) say_(users.trouble() + "; their cells are empty");
    trouble_ = users.trouble();
    UserNames names;
    for (const std::size_t i : devices_)
      cells_.push_back(user_cells(host_, uses[i], snapshot.readings[i], leases, names_, names));
    names_ = std::move(names);
  }
  count_ += devices_.size();
  Facts machine;
  if (own_) own_->add_to(machine);
  if (const auto put = log_->add(snapshot, devices_, {}, machine, cells_); !put) return failed(put.error());
  if (!std::exchange(recording_, true)) report_state(trace::RecorderState::Kind::recording);
  return std::nullopt;
}

SessionEnd TraceSession::failed(const Error& error) {
  quiet_ = quiet_ || (settings_.to_stdout() && error.errno_value == EPIPE);
  if (quiet_) return {};
  std::string what = error.message();
  if (!settings_.to_stdout() &&
      (error.errno_value == ENOSPC || error.errno_value == EFBIG || error.errno_value == EDQUOT))
    what += "; what was written before is whole";
  return {kExitFailure, what};
}

SessionEnd TraceSession::finish() {
  if (quiet_) return {};
  if (const auto closed = log_->close(); !closed) return failed(closed.error());
  if (!settings_.to_stdout())
    say_(fmt::format("{} rows of {} GPU{} in {}{}", count_, devices_.size(), devices_.size() == 1 ? "" : "s",
                     printable(settings_.history.empty() ? settings_.output : settings_.history),
                     gaps_ > 0 ? fmt::format(", {} gaps", gaps_) : ""));
  return {};
}

}  // namespace lull
