#include "lease/watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "base/inotify.h"

namespace lull {

namespace {

constexpr Duration kFirstPause = std::chrono::microseconds(200);
constexpr Duration kLongestPause = std::chrono::milliseconds(100);
constexpr Duration kGiveUpClosing = std::chrono::seconds(30);

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
  return watching();
}

std::optional<Instant> FolderWatch::due() const {
  std::optional<Instant> first;
  for (const auto& [file, closing] : closing_) first = first ? std::min(*first, closing.next) : closing.next;
  return first;
}

void FolderWatch::look_at_closing() {
  const Instant now = clock_->now();
  std::vector<std::string> due;
  for (auto& [file, closing] : closing_) {
    if (closing.next > now) continue;
    due.push_back(file);
    closing.pause = std::min<Duration>(closing.pause * 2, kLongestPause);
    closing.next = now + closing.pause;
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
      closing_.try_emplace(file, Closing{now, now + kFirstPause, kFirstPause});
  }
  look_at_closing();
  return true;
}

}  // namespace lull
