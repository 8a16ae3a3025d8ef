#include "lease/watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>
#include <vector>

#include "base/inotify.h"
#include "lease/folder.h"

namespace lull {
namespace {

constexpr Duration kFirstRetry = std::chrono::microseconds(200);
constexpr Duration kLongestRetry = std::chrono::milliseconds(100);
constexpr Duration kGiveUpClosing = std::chrono::seconds(30);
constexpr Duration kGiveUpBegun = std::chrono::seconds(1);

}  // namespace

const TicketInfo* FolderWatch::ticket(const std::string& file) const {
  const auto found = std::ranges::find(state_.tickets, file, &TicketInfo::file);
  return found == state_.tickets.end() ? nullptr : &*found;
}

bool FolderWatch::alive(const std::string& file) const {
  return std::ranges::find(state_.leases, file, &LeaseInfo::file) != state_.leases.end() || ticket(file) != nullptr;
}

Result<> FolderWatch::read_all() {
  state_ = TRY(folder_->scan());
  std::erase_if(closing_, [&](const auto& entry) { return !alive(entry.first); });
  return {};
}

Result<> FolderWatch::read_ahead(const Place& us, const std::function<bool(const FolderState&)>& enough) {
  TRY(folder_->scan_ahead(state_, us, enough));
  std::erase_if(closing_, [&](const auto& entry) { return !alive(entry.first); });
  return {};
}

Result<> FolderWatch::read_all_ahead(const Place& us) {
  FolderState all;
  TRY(folder_->scan_ahead(all, us, [](const FolderState&) { return false; }));
  state_ = std::move(all);
  std::erase_if(closing_, [&](const auto& entry) { return !alive(entry.first); });
  return {};
}

void FolderWatch::refresh(const std::string& file) {
  std::erase_if(state_.leases, [&](const LeaseInfo& info) { return info.file == file; });
  std::erase_if(state_.tickets, [&](const TicketInfo& info) { return info.file == file; });
  if (auto lease = folder_->lease_in(file)) state_.leases.push_back(*std::move(lease));
  if (auto ticket = folder_->ticket_in(file)) {
    const auto place =
        std::upper_bound(state_.tickets.begin(), state_.tickets.end(), *ticket,
                         [](const TicketInfo& a, const TicketInfo& b) { return a.turn().before(b.turn()); });
    state_.tickets.insert(place, *std::move(ticket));
  }
  if (!alive(file)) closing_.erase(file);
}

bool FolderWatch::begin() {
  events_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!events_) return false;
  // By the descriptor that we hold, wherever the path leads to by now.
  const std::string self = fmt::format("/proc/self/fd/{}", folder_->descriptor());
  const unsigned mask =
      IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF | IN_ONLYDIR;
  if (::inotify_add_watch(events_.get(), self.c_str(), mask) < 0 &&
      ::inotify_add_watch(events_.get(), folder_->path().c_str(), mask) < 0)
    events_.reset();
  if (watching()) begun_ = Closing{clock_->now(), clock_->now() + kFirstRetry, kFirstRetry};
  return watching();
}

std::optional<Instant> FolderWatch::due() const {
  std::optional<Instant> first;
  if (begun_ && !(state_.leases.empty() && state_.tickets.empty())) first = begun_->next;
  for (const auto& [file, closing] : closing_) first = first ? std::min(*first, closing.next) : closing.next;
  return first;
}

void FolderWatch::look_at_closing() {
  const Instant now = clock_->now();
  std::vector<std::string> due;
  const auto is_due = [now](Closing& closing) {
    if (closing.next > now) return false;
    closing.pause = std::min<Duration>(closing.pause * 2, kLongestRetry);
    closing.next = now + closing.pause;
    return true;
  };
  for (auto& [file, closing] : closing_)
    if (is_due(closing)) due.push_back(file);
  if (begun_ && is_due(*begun_)) {
    for (const LeaseInfo& lease : state_.leases) due.push_back(lease.file);
    for (const TicketInfo& ticket : state_.tickets) due.push_back(ticket.file);
    if (now - begun_->first > kGiveUpBegun) begun_.reset();
  }
  for (const std::string& file : due) refresh(file);
  std::erase_if(closing_, [&](const auto& entry) { return now - entry.second.first > kGiveUpClosing; });
}

Result<bool> FolderWatch::read_events(const std::set<std::string>& our_files) {
  std::map<std::string, bool> changed;  // name -> a writer closed it
  bool complete = true;
  bool removed = false;
  if (watching())
    each_inotify_event(events_.get(), [&](const inotify_event& event, std::string_view name) {
      removed = (event.mask & (IN_DELETE_SELF | IN_IGNORED)) != 0;
      if ((event.mask & IN_Q_OVERFLOW) != 0) complete = false;
      if (!name.empty()) {
        bool& closed = changed[std::string(name)];
        closed = closed || (event.mask & IN_CLOSE_WRITE) != 0;
      }
      return !removed;
    });
  if (removed) return fail(fmt::format("the lease folder {} was removed", folder_->path()));
  if (!complete) return false;
  const Instant now = clock_->now();
  for (const auto& [file, closed] : changed) {
    refresh(file);
    if (closed && alive(file) && !our_files.contains(file))
      closing_.try_emplace(file, Closing{now, now + kFirstRetry, kFirstRetry});
  }
  look_at_closing();
  return true;
}

namespace {

std::string wake_pipe_of(const std::string& ticket) {
  return kWakePipePrefix + ticket.substr(std::string_view(kTicketPrefix).size());
}

Fd open_pipe(int folder, const std::string& file, int flags, uid_t owner) {
  Fd pipe(::openat(folder, file.c_str(), flags | O_NONBLOCK | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC));
  struct stat status{};
  if (!pipe || ::fstat(pipe.get(), &status) != 0 || !S_ISFIFO(status.st_mode) || status.st_uid != owner) return {};
  return pipe;
}

// Of a pipe that is open for reading; without a writer there is an end of it to be read.
bool has_writer(int pipe) {
  char byte = 0;
  return ::read(pipe, &byte, 1) < 0 && errno == EAGAIN;
}

}  // namespace

WakePipe WakePipe::hang(int folder, const std::string& ticket) {
  WakePipe wake_pipe;
  wake_pipe.file_ = wake_pipe_of(ticket);
  if (::mkfifoat(folder, wake_pipe.file_.c_str(), 0600) != 0) {
    // One of ours that outlived its ticket, or another user's: then there is none.
    if (errno != EEXIST || ::unlinkat(folder, wake_pipe.file_.c_str(), 0) != 0 ||
        ::mkfifoat(folder, wake_pipe.file_.c_str(), 0600) != 0)
      return {};
  }
  wake_pipe.pipe_ = open_pipe(folder, wake_pipe.file_, O_RDWR, ::geteuid());
  if (!wake_pipe.pipe_ || ::fchmod(wake_pipe.pipe_.get(), 0644) != 0) wake_pipe.ring(folder);
  return wake_pipe;
}

void WakePipe::ring(int folder) {
  if (!file_.empty()) ::unlinkat(folder, file_.c_str(), 0);
  file_.clear();
  pipe_.reset();
}

Fd listen_to_wake_pipe(int folder, const std::string& ticket, uid_t owner) {
  Fd pipe = open_pipe(folder, wake_pipe_of(ticket), O_RDONLY, owner);
  if (!pipe || !has_writer(pipe.get())) return {};
  return pipe;
}

bool is_dead_wake_pipe(int folder, const std::string& file) {
  struct stat status{};
  if (::fstatat(folder, file.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISFIFO(status.st_mode)) return false;
  const Fd pipe = open_pipe(folder, file, O_RDONLY, status.st_uid);
  return pipe && !has_writer(pipe.get()) && (status.st_uid == ::geteuid() || ::geteuid() == 0);
}

}  // namespace lull
