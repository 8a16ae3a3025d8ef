#include "lease/queue.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace lull {

namespace {

// So many at the head of the line follow what happens in the folder: the second is ready when the first is served, and
// sees to it that one who is stopped or stuck does not hold up the rest.
constexpr std::size_t kNear = 2;
// Those behind look around all the same, the farther the more rarely: all of those near may be stuck. A thousand of
// them must not keep the processors from those whose turn it is.
constexpr Duration kLookAround = std::chrono::seconds(5);
constexpr Duration kLookAroundEach = std::chrono::milliseconds(500);
constexpr Duration kLongestLookAround = std::chrono::minutes(5);
// A thousand who come at once pass the folder lock one by one, and who waits for hours can wait for that.
constexpr Duration kQueueing = std::chrono::minutes(5);
constexpr Duration kFirstPause = std::chrono::milliseconds(1);  // where nothing can wake us
constexpr Duration kLongestPause = std::chrono::milliseconds(250);

bool unlinked(const LockedFile& file) {
  struct stat status{};
  return ::fstat(file.fd.get(), &status) != 0 || status.st_nlink == 0;
}

std::optional<Instant> earlier(std::optional<Instant> a, std::optional<Instant> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

LeaseQueue::LeaseQueue(const LeaseFolder& folder, Demand demand, std::vector<Candidate> candidates, const Clock& clock)
    : folder_(&folder),
      clock_(&clock),
      demand_(std::move(demand)),
      candidates_(std::move(candidates)),
      watch_(folder, clock) {
  if (demand_.pattern.id.empty()) demand_.pattern.id = random_id();
  demand_.pattern.within = demand_.within;
}

Place LeaseQueue::place() const {
  if (!ticket_) return {demand_.priority, UINT64_MAX, "", ::geteuid(), 0, demand_.share};
  return {ticket_record_.priority, ticket_record_.number, ticket_->file, ::geteuid(), ticket_born_, demand_.share};
}

std::set<std::string> LeaseQueue::our_files() const {
  std::set<std::string> files;
  for (const auto& [index, file] : kept_) files.insert(file.file);
  return files;
}

std::vector<Standing> LeaseQueue::stand() {
  for (TicketInfo& ticket : watch_.state().tickets) ticket.stopped = false;
  std::vector<Standing> result;
  do {
    result = standings(watch_.state(), candidates_, place(), demand_.within, our_files(), passed_over_);
    for (const auto& [index, file] : kept_) result[index].state = Standing::ours;  // even if we have not read it yet
  } while (note_stopped(result) || note_idle_claims(result));
  return result;
}

// A stopped waiter (Ctrl-Z) takes nothing until it continues. There is no event for it, so it is looked up for those
// that are ahead of us right now. True: one is stopped.
bool LeaseQueue::note_stopped(const std::vector<Standing>& standing) {
  bool found = false;
  std::set<const TicketInfo*> asked;
  for (const Standing& one : standing) {
    if (!one.claimable() && (one.spoken_for == nullptr || one.state != Standing::ours)) continue;
    if (!asked.insert(one.spoken_for).second || !stopped(one.spoken_for->record.waiter)) continue;
    auto& tickets = watch_.state().tickets;
    tickets[static_cast<std::size_t>(one.spoken_for - tickets.data())].stopped = found = true;
  }
  return found;
}

// True: a waiter that does not come is passed over from now on.
bool LeaseQueue::note_idle_claims(const std::vector<Standing>& standing) {
  const auto there = [&](const std::string& file) { return watch_.ticket(file) != nullptr; };
  std::erase_if(passed_over_, [&](const auto& claim) { return !there(claim.first); });
  std::vector<IdleClaims::Claim> claims;
  for (std::size_t i = 0; i < standing.size(); ++i)
    if (standing[i].claimable()) claims.push_back({candidates_[i].uuid, standing[i].spoken_for->file});
  bool more = false;
  for (const std::string& uuid : idle_claims_.look(claims, there, clock_->now()))
    for (const Candidate& candidate : candidates_)
      for (const TicketInfo& ticket : watch_.state().tickets)
        if (candidate.uuid == uuid && wants(ticket.record, candidate))
          more |= passed_over_.emplace(ticket.file, uuid).second;
  return more;
}

Result<std::vector<Standing>> LeaseQueue::look() {
  if (stale_ == Stale::wholly || !ticket_) {
    TRY(read_anew());
  } else if (stale_ == Stale::partly) {
    TRY(read_ahead(true));
  }
  stale_ = Stale::fresh;
  if (looks_around_) TRY(look_around());
  return stand_among_all();
}

// What concerns us: for a waiter, nothing behind it.
Result<> LeaseQueue::read_anew() {
  looks_around_ = false;
  return ticket_ ? watch_.read_all_ahead(place()) : watch_.read_all();
}

// A waiter may be stuck only if a GPU is free and the waiter that it is for has not come. Which one, all ahead tell.
Result<> LeaseQueue::look_around() {
  looks_around_ = false;
  if (!std::ranges::any_of(stand(), &Standing::claimable)) return {};
  return read_anew();
}

// While two ahead of us want all that we could take, only they matter. Otherwise all ahead do.
Result<std::vector<Standing>> LeaseQueue::stand_among_all() {
  auto standing = stand();
  if (watch_.state().unread == 0 || cover() != nullptr) return standing;
  TRY(read_anew());
  return stand();
}

Result<> LeaseQueue::read_ahead(bool verify) {
  do {
    TRY(watch_.read_ahead(place(), [&](const FolderState& state) { return cover(state) != nullptr; }));
    if (verify) verify_ahead();
  } while (watch_.state().unread > 0 && cover() == nullptr);
  return {};
}

// Tickets that we have read once are not read again while we are far behind. Before we rely on one it is: on the one
// that we wait for, or on all ahead of us.
void LeaseQueue::verify_ahead() {
  while (const TicketInfo* ahead = cover()) {
    const TicketInfo before = *ahead;
    watch_.refresh(before.file);
    const TicketInfo* now = watch_.ticket(before.file);
    if (now != nullptr && now->record == before.record && now->born == before.born) return;
  }
  std::vector<std::string> files;
  for (const TicketInfo& ticket : watch_.state().tickets)
    if (goes_before(ticket, place(), demand_.within)) files.push_back(ticket.file);
  for (const std::string& file : files) watch_.refresh(file);
}

bool LeaseQueue::wanted(std::size_t index) const { return candidates_[index].fit != Fit::no && !kept_.contains(index); }

const TicketInfo* LeaseQueue::cover(const FolderState& state) const {
  if (!ticket_ || !kept_.empty()) return nullptr;
  const Place us = place();
  std::vector<const TicketInfo*> ahead;
  for (const TicketInfo& ticket : state.tickets) {
    if (!goes_before(ticket, us, demand_.within)) continue;
    bool all = true;
    for (std::size_t i = 0; all && i < candidates_.size(); ++i)
      all = !wanted(i) ||
            (wants(ticket.record, candidates_[i]) && !passed_over_.contains({ticket.file, candidates_[i].uuid}));
    if (all) ahead.push_back(&ticket);
  }
  return ahead.size() < kNear ? nullptr : ahead[ahead.size() - kNear];
}

// What may be taken now: none ahead wants it, and it suits us, alone or shared.
std::vector<std::size_t> LeaseQueue::open_ones(const std::vector<Standing>& standing) const {
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const Fit fit = standing[i].state == Standing::shared ? candidates_[i].company : candidates_[i].fit;
    if (standing[i].open() && fit == Fit::yes) open.push_back(i);
  }
  return open;
}

// Those with fewer holders first.
Result<> LeaseQueue::take_some(const LeaseFolder::FolderLock& folder_lock, const Chooser& choose,
                               const std::vector<Standing>& standing, std::size_t count, LeaseKind kind) {
  std::map<unsigned, std::vector<std::size_t>> by_holders;
  for (const std::size_t index : open_ones(standing)) by_holders[standing[index].holders].push_back(index);
  for (const auto& [holders, open] : by_holders) {
    const std::size_t some = std::min(count, open.size());
    if (some == 0) break;
    for (const std::size_t index : choose(open, kept(), some)) TRY(take(folder_lock, index, kind));
    count -= some;
  }
  return {};
}

Result<> LeaseQueue::take(const LeaseFolder::FolderLock& folder_lock, std::size_t index, LeaseKind kind) {
  LeaseRecord record = demand_.pattern;
  record.gpu = candidates_[index].uuid;
  record.label = candidates_[index].label;
  record.kind = kind;
  record.since = clock_->wall();
  kept_.emplace(index, TRY(folder_->take(folder_lock, record)));
  records_[index] = std::move(record);
  return {};
}

void LeaseQueue::drop(const LeaseFolder::FolderLock& folder_lock, std::size_t index) {
  const auto found = kept_.find(index);
  if (found == kept_.end()) return;
  if (stale_ == Stale::fresh) stale_ = Stale::partly;
  folder_->give_back(folder_lock, std::move(found->second));
  kept_.erase(found);
  records_.erase(index);
}

// A user with the right to do so took it away: `lull release --force`.
void LeaseQueue::forget_revoked() {
  std::erase_if(kept_, [](const auto& entry) { return unlinked(entry.second); });
  std::erase_if(records_, [&](const auto& entry) { return !kept_.contains(entry.first); });
  if (ticket_ && unlinked(*ticket_)) ticket_.reset();
}

Result<bool> LeaseQueue::take_now(const Chooser& choose) {
  const auto folder_lock = TRY(folder_->enter());
  TRY(watch_.read_all());
  const auto standing = stand();
  if (open_ones(standing).size() < demand_.count) return false;
  if (auto taken = take_some(folder_lock, choose, standing, demand_.count, demand_.pattern.kind); !taken) {
    for (const std::size_t index : kept()) drop(folder_lock, index);
    return std::unexpected(std::move(taken).error());
  }
  return true;
}

bool LeaseQueue::awaits_those_ahead() {
  const auto standing = stand();
  return std::ranges::all_of(standing, [](const Standing& one) { return one.open() || one.claimable(); });
}

Result<> LeaseQueue::join(const LeaseFolder::FolderLock& folder_lock) {
  const std::uint64_t last = TRY(folder_->last_number());
  ticket_record_ = {};
  ticket_record_.number = last == UINT64_MAX ? last : last + 1;
  ticket_record_.priority = demand_.priority;
  ticket_record_.count = demand_.count;
  ticket_record_.missing = demand_.count;
  ticket_record_.share = demand_.share;
  ticket_record_.within = demand_.within;
  ticket_record_.user = demand_.pattern.user;
  ticket_record_.waiter = ProcessMark::of(0);
  ticket_record_.command = demand_.pattern.command;
  ticket_record_.since = clock_->wall();
  for (const Candidate& candidate : candidates_) ticket_record_.wants.push_back(candidate.uuid);
  ticket_record_.scope = ticket_record_.wants;
  ticket_ = TRY(folder_->queue(folder_lock, ticket_record_));
  ticket_born_ = birth_of(ticket_->fd.get());
  wake_pipe_ = WakePipe::hang(folder_->descriptor(), ticket_->file);
  return {};
}

Result<> LeaseQueue::update_ticket(const LeaseFolder::FolderLock& folder_lock, bool hopeful) {
  if (!ticket_) return {};
  TicketRecord record = ticket_record_;
  record.missing = demand_.count - static_cast<unsigned>(kept_.size());
  record.wants.clear();
  for (std::size_t i = 0; hopeful && i < candidates_.size(); ++i)
    if (wanted(i)) record.wants.push_back(candidates_[i].uuid);
  if (record == ticket_record_) return {};
  TRY(folder_->rewrite(folder_lock, *ticket_, write_record(record)));
  ticket_record_ = std::move(record);
  if (ticket_record_.missing == 0) return {};  // finish() rings it in a moment
  wake_pipe_.ring(folder_->descriptor());
  wake_pipe_ = WakePipe::hang(folder_->descriptor(), ticket_->file);
  return {};
}

Result<bool> LeaseQueue::turn(const Chooser& choose) {
  const auto folder_lock = TRY(folder_->enter(kQueueing));
  forget_revoked();
  // The leases are always read again: otherwise a GPU could be leased twice.
  if (watch_.watching() && !TRY(watch_.read_events(our_files()))) stale_ = Stale::wholly;
  const bool joins = !ticket_;
  if (joins) TRY(join(folder_lock));
  if (stale_ == Stale::wholly && !joins)
    TRY(read_anew());
  else
    TRY(read_ahead(stale_ != Stale::fresh || !watch_.watching()));
  stale_ = Stale::fresh;
  const auto standing = TRY(stand_among_all());

  // What can be had at all: the fit, and what those who work with it will give back one day.
  std::size_t obtainable = 0;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    if (standing[i].state == Standing::leased || standing[i].state == Standing::shared)
      candidates_[i].fit = Fit::unknown;
    if (standing[i].state == Standing::ours || candidates_[i].fit != Fit::no) ++obtainable;
  }
  const bool hopeful = obtainable >= demand_.count;
  for (const std::size_t index : kept()) {
    const Standing& one = standing[index];
    const bool in_the_way =
        one.spoken_for && one.holders + 2 > std::min({one.spoken_for->record.share, one.patience, demand_.share});
    if (!hopeful || in_the_way) drop(folder_lock, index);
  }
  if (hopeful) TRY(take_some(folder_lock, choose, standing, demand_.count - kept_.size(), LeaseKind::collecting));
  TRY(update_ticket(folder_lock, hopeful));
  return kept_.size() == demand_.count;
}

Result<> LeaseQueue::give_back(std::span<const std::size_t> indices) {
  if (indices.empty()) return {};
  const auto folder_lock = TRY(folder_->enter());
  for (const std::size_t index : indices) drop(folder_lock, index);
  TRY(update_ticket(folder_lock, true));
  return {};
}

std::vector<std::size_t> LeaseQueue::kept() const {
  std::vector<std::size_t> indices;
  for (const auto& [index, file] : kept_) indices.push_back(index);
  return indices;
}

std::vector<std::size_t> LeaseQueue::unfit_of_kept() {
  const auto standing = stand();
  std::vector<std::size_t> unfit;
  for (const std::size_t index : kept()) {
    const bool in_company = standing[index].holders > 0 && candidates_[index].company == Fit::yes;
    if (candidates_[index].fit != Fit::yes && !in_company) unfit.push_back(index);
  }
  return unfit;
}

std::size_t LeaseQueue::ahead() const {
  if (!ticket_) return 0;
  const auto rival = [&](const TicketInfo& ticket) {
    if (ticket.file == ticket_->file || !ticket.turn().before(place().turn())) return false;
    if (ticket.record.within != demand_.within || ticket.record.missing == 0) return false;
    return std::ranges::any_of(candidates_, [&](const Candidate& one) { return wants(ticket.record, one); });
  };
  return watch_.state().unread + static_cast<std::size_t>(std::ranges::count_if(watch_.state().tickets, rival));
}

Result<std::optional<std::vector<LockedFile>>> LeaseQueue::finish(const std::function<bool()>& fresh) {
  const bool final_text = std::all_of(records_.begin(), records_.end(), [&](const auto& entry) {
    return entry.second.kind == demand_.pattern.kind && entry.second.until == demand_.pattern.until;
  });
  std::optional<LeaseFolder::FolderLock> folder_lock;
  if (ticket_ || !final_text) folder_lock.emplace(TRY(folder_->enter()));
  if (!fresh()) return std::nullopt;
  forget_revoked();
  if (kept_.size() != demand_.count) return fail("another process released a GPU before it could be used");
  if (folder_lock) {
    for (auto& [index, record] : records_) {
      record.kind = demand_.pattern.kind;
      record.until = demand_.pattern.until;
      record.since = clock_->wall();
      TRY(folder_->rewrite(*folder_lock, kept_.at(index), write_record(record)));
    }
    if (ticket_) folder_->give_back(*folder_lock, *std::move(ticket_));
    ticket_.reset();
    wake_pipe_.ring(folder_->descriptor());
  }
  std::vector<LockedFile> files;
  for (auto& [index, file] : kept_) files.push_back(std::move(file));
  kept_.clear();
  return files;
}

// The one two places ahead of us has to go first, or want something else.
Sleep LeaseQueue::sleep_behind(const TicketInfo& ahead, std::optional<Instant> until) {
  const Instant now = clock_->now();
  watch_.end();
  if (listened_to_ != ahead.file) pause_ = kFirstPause;
  listened_to_ = ahead.file;
  // Names without a live process count here too, so there is a limit.
  const Instant our_time =
      now + std::min<Duration>(kLookAroundEach * static_cast<std::int64_t>(this->ahead()), kLongestLookAround);
  look_around_ = std::max(now + kLookAround, our_time);
  if (const auto due = idle_claims_.due()) look_around_ = earlier(look_around_, std::max(*due, our_time));
  heard_ = listen_to_wake_pipe(folder_->descriptor(), ahead.file, ahead.owner);
  until = earlier(until, look_around_);
  if (!heard_) {
    until = earlier(until, now + pause_);
    pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
  }
  // It may have gone before we listened.
  const auto there = folder_->ticket_in(ahead.file);
  stale_ = Stale::partly;
  if (!there || there->record != ahead.record) return {.until = now};
  return {.events = heard_ ? std::vector{heard_.get()} : std::vector<int>(), .until = until};
}

Sleep LeaseQueue::sleep(std::optional<Instant> until) {
  if (const TicketInfo* ahead = cover()) return sleep_behind(*ahead, until);
  until = earlier(until, idle_claims_.due());
  if (watch_.watching()) return {.events = {watch_.descriptor()}, .until = earlier(until, watch_.due())};
  stale_ = ticket_ ? Stale::partly : Stale::wholly;  // what happened before a watch began went by unseen
  if (watch_.begin()) {
    pause_ = kFirstPause;
    return {.until = clock_->now()};
  }
  pause_ = std::max(pause_, kFirstPause);
  until = earlier(until, clock_->now() + pause_);
  pause_ = std::min<Duration>(pause_ * 2, kLongestPause);
  return {.until = until};
}

Result<> LeaseQueue::woken() {
  heard_.reset();
  looks_around_ = look_around_ && clock_->now() >= *look_around_;
  look_around_.reset();
  if (watch_.watching() && !TRY(watch_.read_events(our_files()))) stale_ = Stale::wholly;
  return {};
}

}  // namespace lull
