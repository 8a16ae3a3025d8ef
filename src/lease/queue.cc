#include "lease/queue.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace lull {

namespace {

const SystemClock kClock;
// A waiter whose turn it is takes its GPU in milliseconds. One that has not by
// now is stopped or stuck, and those behind it need not be.
constexpr Duration kGrace = std::chrono::seconds(5);
constexpr Duration kLongestGrace = std::chrono::seconds(60);  // whoever speaks for it
constexpr Duration kFirstPause = std::chrono::microseconds(200);
constexpr Duration kLongestPause = std::chrono::milliseconds(100);
constexpr Duration kGiveUpClosing = std::chrono::seconds(30);

bool wants(const TicketRecord& ticket, const std::string& uuid) {
  return std::find(ticket.wants.begin(), ticket.wants.end(), uuid) != ticket.wants.end();
}

bool unlinked(const LockedFile& file) {
  struct stat status{};
  return ::fstat(file.fd.get(), &status) != 0 || status.st_nlink == 0;
}

std::optional<Instant> earlier(std::optional<Instant> a, std::optional<Instant> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

std::set<std::string> around(const std::string& within, const FolderState& state, uid_t user) {
  std::set<std::string> chain;
  std::string id = within;
  while (!id.empty() && chain.insert(id).second) {
    const auto found = std::find_if(state.leases.begin(), state.leases.end(), [&](const LeaseInfo& lease) {
      return lease.owner == user && lease.record.id == id;
    });
    id = found == state.leases.end() ? "" : found->record.within;
  }
  return chain;
}

std::vector<Standing> standings(const FolderState& state, std::span<const Candidate> candidates, const Place& place,
                                const std::string& within, const std::set<std::string>& our_files,
                                const PassedOver& passed_over) {
  const std::set<std::string> ours_to_use = around(within, state, place.user);
  const Turn us = place.turn();
  std::vector<Standing> result(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const std::string& uuid = candidates[i].uuid;
    Standing& standing = result[i];
    for (const LeaseInfo& lease : state.leases) {
      if (lease.gpu != uuid) continue;
      if (our_files.contains(lease.file)) {
        if (standing.state == Standing::free) standing.state = Standing::ours;
        continue;
      }
      if (lease.readable && lease.owner == place.user && ours_to_use.contains(lease.record.id)) continue;
      const bool collecting = lease.readable && lease.record.kind == LeaseKind::collecting;
      if (standing.state == Standing::leased) continue;
      standing.state = collecting ? Standing::collecting : Standing::leased;
      standing.by = &lease;
    }
    for (const TicketInfo& ticket : state.tickets) {
      if (ticket.file == place.ticket || ticket.stopped || !ticket.turn().before(us)) continue;
      if (ticket.record.missing == 0 || ticket.record.within != within || !wants(ticket.record, uuid)) continue;
      if (!within.empty() && ticket.owner != place.user) continue;  // nobody else can be inside
      if (passed_over.contains({ticket.file, uuid})) continue;
      standing.spoken_for = &ticket;
      break;
    }
  }
  return result;
}

LeaseQueue::LeaseQueue(const LeaseFolder& folder, Demand demand, std::vector<Candidate> candidates)
    : folder_(&folder), demand_(std::move(demand)), candidates_(std::move(candidates)) {
  if (demand_.pattern.id.empty()) demand_.pattern.id = random_id();
  demand_.pattern.within = demand_.within;
}

Place LeaseQueue::place() const {
  if (!ticket_) return {demand_.priority, UINT64_MAX, "", ::geteuid(), 0};
  return {ticket_record_.priority, ticket_record_.number, ticket_->file, ::geteuid(), ticket_born_};
}

std::set<std::string> LeaseQueue::our_files() const {
  std::set<std::string> files;
  for (const auto& [index, file] : kept_) files.insert(file.file);
  return files;
}

bool LeaseQueue::alive_in_cache(const std::string& file) const {
  const auto named = [&](const auto& info) { return info.file == file; };
  return std::any_of(state_.leases.begin(), state_.leases.end(), named) ||
         std::any_of(state_.tickets.begin(), state_.tickets.end(), named);
}

void LeaseQueue::remember(FolderState state) {
  state_ = std::move(state);
  std::erase_if(closing_, [&](const auto& entry) { return !alive_in_cache(entry.first); });
  stale_ = false;
}

std::vector<Standing> LeaseQueue::stand() {
  for (TicketInfo& ticket : state_.tickets) ticket.stopped = false;
  std::vector<Standing> result;
  do {
    result = standings(state_, candidates_, place(), demand_.within, our_files(), passed_over_);
    for (const auto& [index, file] : kept_) result[index].state = Standing::ours;  // even if we have not read it yet
  } while (note_stopped(result) || note_idle_claims(result));
  return result;
}

// Who is stopped (Ctrl-Z) comes for nothing until it goes on. No event tells of it, so it is looked up for those who
// are in our way right now. True: somebody is.
bool LeaseQueue::note_stopped(const std::vector<Standing>& standing) {
  bool found = false;
  std::set<const TicketInfo*> asked;
  for (const Standing& one : standing) {
    if (one.spoken_for == nullptr || (one.state != Standing::free && one.state != Standing::ours)) continue;
    if (!asked.insert(one.spoken_for).second || !stopped(one.spoken_for->record.waiter)) continue;
    state_.tickets[static_cast<std::size_t>(one.spoken_for - state_.tickets.data())].stopped = found = true;
  }
  return found;
}

// A GPU that is free, and spoken for by somebody who does not come to get it. The time runs for the GPU: writing a
// ticket anew does not begin it anew. While one after the other is served the queue moves, and it does; but not for
// ever, as long as nobody takes the GPU. True: somebody is passed over from now on.
bool LeaseQueue::note_idle_claims(const std::vector<Standing>& standing) {
  const Instant now = kClock.now();
  const auto there = [&](const std::string& file) {
    return std::any_of(state_.tickets.begin(), state_.tickets.end(),
                       [&](const TicketInfo& info) { return info.file == file; });
  };
  std::erase_if(passed_over_, [&](const auto& claim) { return !there(claim.first); });
  due_.reset();
  bool more = false;
  std::set<std::string> spoken_for;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    if (standing[i].state != Standing::free || standing[i].spoken_for == nullptr) continue;
    const std::string& uuid = candidates_[i].uuid;
    spoken_for.insert(uuid);
    Idle& idle = idle_.try_emplace(uuid, Idle{now, now, standing[i].spoken_for->file}).first->second;
    if (idle.speaker != standing[i].spoken_for->file && !there(idle.speaker)) idle.since = now;
    idle.speaker = standing[i].spoken_for->file;
    const Instant end = std::min(idle.since + kGrace, idle.first + kLongestGrace);
    if (now < end) {
      due_ = earlier(due_, end);
      continue;
    }
    for (const TicketInfo& ticket : state_.tickets)
      if (wants(ticket.record, uuid)) more |= passed_over_.emplace(ticket.file, uuid).second;
  }
  std::erase_if(idle_, [&](const auto& entry) { return !spoken_for.contains(entry.first); });
  return more;
}

Result<std::vector<Standing>> LeaseQueue::look() {
  if (stale_ || !watch_) remember(TRY(folder_->scan()));
  return stand();
}

Result<> LeaseQueue::take(const LeaseFolder::Door& door, std::size_t index, LeaseKind kind) {
  LeaseRecord record = demand_.pattern;
  record.gpu = candidates_[index].uuid;
  record.label = candidates_[index].label;
  record.kind = kind;
  record.since = kClock.wall();
  kept_.emplace(index, TRY(folder_->take(door, record)));
  records_[index] = std::move(record);
  return {};
}

void LeaseQueue::drop(const LeaseFolder::Door& door, std::size_t index) {
  const auto found = kept_.find(index);
  if (found == kept_.end()) return;
  stale_ = true;
  folder_->give_back(door, std::move(found->second));
  kept_.erase(found);
  records_.erase(index);
}

// Somebody with the right to do so took it away: `lull release --force`.
void LeaseQueue::forget_revoked() {
  std::erase_if(kept_, [](const auto& entry) { return unlinked(entry.second); });
  std::erase_if(records_, [&](const auto& entry) { return !kept_.contains(entry.first); });
  if (ticket_ && unlinked(*ticket_)) ticket_.reset();
}

Result<bool> LeaseQueue::take_now(const Chooser& choose) {
  const auto door = TRY(folder_->enter());
  remember(TRY(folder_->scan()));
  const auto standing = stand();
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < standing.size(); ++i)
    if (standing[i].state == Standing::free && !standing[i].spoken_for && candidates_[i].fit == Fit::yes)
      open.push_back(i);
  if (open.size() < demand_.count) return false;
  for (const std::size_t index : choose(open, {}, demand_.count))
    if (auto taken = take(door, index, demand_.pattern.kind); !taken) {
      for (const std::size_t kept : kept()) drop(door, kept);
      return std::unexpected(std::move(taken).error());
    }
  return true;
}

Result<> LeaseQueue::join(const LeaseFolder::Door& door, const FolderState& state) {
  std::uint64_t last = 0;
  for (const TicketInfo& ticket : state.tickets) last = std::max(last, ticket.record.number);
  ticket_record_ = {};
  ticket_record_.number = last == UINT64_MAX ? last : last + 1;
  ticket_record_.priority = demand_.priority;
  ticket_record_.count = demand_.count;
  ticket_record_.missing = demand_.count;
  ticket_record_.within = demand_.within;
  ticket_record_.user = demand_.pattern.user;
  ticket_record_.waiter = ProcessMark::of(0);
  ticket_record_.command = demand_.pattern.command;
  ticket_record_.since = kClock.wall();
  for (const Candidate& candidate : candidates_) ticket_record_.wants.push_back(candidate.uuid);
  ticket_ = TRY(folder_->queue(door, ticket_record_));
  ticket_born_ = birth_of(ticket_->fd.get());
  return {};
}

Result<> LeaseQueue::update_ticket(const LeaseFolder::Door& door, bool hopeful) {
  if (!ticket_) return {};
  TicketRecord record = ticket_record_;
  record.missing = demand_.count - static_cast<unsigned>(kept_.size());
  record.wants.clear();
  for (std::size_t i = 0; hopeful && i < candidates_.size(); ++i)
    if (candidates_[i].fit != Fit::no && !kept_.contains(i)) record.wants.push_back(candidates_[i].uuid);
  if (record == ticket_record_) return {};
  TRY(folder_->rewrite(door, *ticket_, write_record(record)));
  ticket_record_ = std::move(record);
  return {};
}

Result<bool> LeaseQueue::turn(const Chooser& choose) {
  const auto door = TRY(folder_->enter());
  forget_revoked();
  remember(TRY(folder_->scan()));
  if (!ticket_) TRY(join(door, state_));
  auto standing = stand();

  // What can be had at all: the fit, and what those who work with it will give back one day.
  std::size_t obtainable = 0;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    if (standing[i].state == Standing::leased) candidates_[i].fit = Fit::unknown;
    if (standing[i].state == Standing::ours || candidates_[i].fit != Fit::no) ++obtainable;
  }
  const bool hopeful = obtainable >= demand_.count;
  for (const std::size_t index : kept())
    if (!hopeful || standing[index].spoken_for) drop(door, index);
  if (hopeful) {
    std::vector<std::size_t> open;
    for (std::size_t i = 0; i < standing.size(); ++i)
      if (standing[i].state == Standing::free && !standing[i].spoken_for && candidates_[i].fit == Fit::yes)
        open.push_back(i);
    const std::size_t want = std::min<std::size_t>(demand_.count - kept_.size(), open.size());
    if (want > 0)
      for (const std::size_t index : choose(open, kept(), want)) TRY(take(door, index, LeaseKind::collecting));
  }
  TRY(update_ticket(door, hopeful));
  return kept_.size() == demand_.count;
}

Result<> LeaseQueue::give_back(std::span<const std::size_t> indices) {
  if (indices.empty()) return {};
  const auto door = TRY(folder_->enter());
  for (const std::size_t index : indices) drop(door, index);
  TRY(update_ticket(door, true));
  return {};
}

std::vector<std::size_t> LeaseQueue::kept() const {
  std::vector<std::size_t> indices;
  for (const auto& [index, file] : kept_) indices.push_back(index);
  return indices;
}

std::vector<TicketInfo> LeaseQueue::ahead() const {
  std::vector<TicketInfo> result;
  if (!ticket_) return result;
  for (const TicketInfo& ticket : state_.tickets) {
    if (ticket.file == ticket_->file || !ticket.turn().before(place().turn())) continue;
    if (ticket.record.within != demand_.within || ticket.record.missing == 0) continue;
    const bool rival = std::any_of(candidates_.begin(), candidates_.end(),
                                   [&](const Candidate& candidate) { return wants(ticket.record, candidate.uuid); });
    if (rival) result.push_back(ticket);
  }
  return result;
}

Result<std::vector<LockedFile>> LeaseQueue::finish() {
  forget_revoked();
  if (kept_.size() != demand_.count) return fail("a GPU was released by somebody else before it could be used");
  const bool final_words = std::all_of(records_.begin(), records_.end(), [&](const auto& entry) {
    return entry.second.kind == demand_.pattern.kind && entry.second.until == demand_.pattern.until;
  });
  if (ticket_ || !final_words) {
    const auto door = TRY(folder_->enter());
    for (auto& [index, record] : records_) {
      record.kind = demand_.pattern.kind;
      record.until = demand_.pattern.until;
      record.since = kClock.wall();
      TRY(folder_->rewrite(door, kept_.at(index), write_record(record)));
    }
    if (ticket_) folder_->give_back(door, *std::move(ticket_));
    ticket_.reset();
  }
  std::vector<LockedFile> files;
  for (auto& [index, file] : kept_) files.push_back(std::move(file));
  kept_.clear();
  return files;
}

void LeaseQueue::refresh(const std::string& file, bool closed) {
  const auto named = [&](const auto& info) { return info.file == file; };
  std::erase_if(state_.leases, named);
  std::erase_if(state_.tickets, named);
  if (auto lease = folder_->lease_in(file)) state_.leases.push_back(*std::move(lease));
  if (auto ticket = folder_->ticket_in(file)) {
    const auto place =
        std::upper_bound(state_.tickets.begin(), state_.tickets.end(), *ticket,
                         [](const TicketInfo& a, const TicketInfo& b) { return a.turn().before(b.turn()); });
    state_.tickets.insert(place, *std::move(ticket));
  }
  if (!alive_in_cache(file)) {
    closing_.erase(file);
  } else if (closed && !our_files().contains(file)) {
    const Instant now = kClock.now();
    closing_.try_emplace(file, Closing{now, now + kFirstPause, kFirstPause});
  }
}

void LeaseQueue::look_at_closing() {
  const Instant now = kClock.now();
  std::vector<std::string> due;
  for (auto& [file, closing] : closing_) {
    if (closing.next > now) continue;
    due.push_back(file);
    closing.pause = std::min<Duration>(closing.pause * 2, kLongestPause);
    closing.next = now + closing.pause;
  }
  for (const std::string& file : due) refresh(file, false);
  std::erase_if(closing_, [&](const auto& entry) { return now - entry.second.first > kGiveUpClosing; });
}

Result<> LeaseQueue::read_events() {
  alignas(inotify_event) std::array<char, 16384> buffer;
  std::map<std::string, bool> changed;  // name -> a writer closed it
  while (true) {
    const ssize_t got = ::read(watch_.get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    for (ssize_t at = 0; at < got;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      if ((event.mask & (IN_DELETE_SELF | IN_IGNORED)) != 0)
        return fail(fmt::format("the lease folder {} was removed", folder_->path()));
      if ((event.mask & IN_Q_OVERFLOW) != 0) stale_ = true;
      if (event.len > 0) {
        bool& closed = changed[std::string(buffer.data() + at + static_cast<ssize_t>(sizeof event))];
        closed = closed || (event.mask & IN_CLOSE_WRITE) != 0;
      }
      at += static_cast<ssize_t>(sizeof event) + static_cast<ssize_t>(event.len);
    }
  }
  if (stale_) return {};
  for (const auto& [file, closed] : changed) refresh(file, closed);
  return {};
}

Result<> LeaseQueue::wait(std::optional<Instant> until, int wake) {
  if (!watch_) {
    watch_ = Fd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!watch_) return fail(errno, "watch the lease folder (fs.inotify.max_user_instances?)");
    // By the descriptor that we hold, wherever the path leads to by now.
    const std::string self = fmt::format("/proc/self/fd/{}", folder_->descriptor());
    const unsigned mask = IN_MODIFY | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE_SELF;
    if (::inotify_add_watch(watch_.get(), self.c_str(), mask | IN_ONLYDIR) < 0 &&
        ::inotify_add_watch(watch_.get(), folder_->path().c_str(), mask | IN_ONLYDIR) < 0)
      return fail(errno, "watch the lease folder " + folder_->path());
    stale_ = true;  // what happened before the watch began went by unseen
    return {};
  }
  until = earlier(until, due_);
  for (const auto& [file, closing] : closing_) until = earlier(until, closing.next);
  timespec patience{};
  if (until) {
    const Duration left = std::max<Duration>(*until - kClock.now(), Duration::zero());
    patience.tv_sec = std::chrono::floor<std::chrono::seconds>(left).count();
    patience.tv_nsec = (left % std::chrono::seconds(1)).count();
  }
  std::array<pollfd, 2> sources{{{watch_.get(), POLLIN, 0}, {wake, POLLIN, 0}}};
  if (::ppoll(sources.data(), wake >= 0 ? 2 : 1, until ? &patience : nullptr, nullptr) < 0 && errno != EINTR)
    return fail(errno, "wait for the lease folder");
  TRY(read_events());
  look_at_closing();
  return {};
}

}  // namespace lull
