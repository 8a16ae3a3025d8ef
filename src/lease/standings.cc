#include "lease/standings.h"

#include <algorithm>

namespace lull {
namespace {

// A lease inside a lease of the same job is not another holder of the GPU: the outer lease stands for it. For a process
// inside that outer lease, it is.
bool narrows_what_is_not_ours(const LeaseInfo& lease, const FolderState& state, const std::set<std::string>& ours,
                              uid_t user) {
  if (!lease.readable || lease.record.within.empty()) return false;
  const std::set<std::string> chain = around(lease.record.within, state, lease.owner);
  return std::ranges::any_of(state.leases, [&](const LeaseInfo& other) {
    return other.gpu == lease.gpu && other.owner == lease.owner && other.readable && chain.contains(other.record.id) &&
           !(other.owner == user && ours.contains(other.record.id));
  });
}

// For a process inside a lease: others that share the GPU with that lease do not block it. Unless the two do not agree
// that they share: then the lease was taken away and another has the GPU now.
class Beside {
 public:
  Beside(const FolderState& state, const Candidate& candidate, const std::string& within,
         const std::set<std::string>& chain, uid_t user)
      : state_(state), within_(within), user_(user) {
    for (const LeaseInfo& lease : state.leases)
      shared_ = shared_ || (candidate.is(lease.gpu) && lease.owner == user && lease.readable &&
                            lease.record.share > 1 && chain.contains(lease.record.id));
  }
  bool operator()(const LeaseInfo& lease) const {
    if (within_.empty() || !shared_ || !lease.readable) return false;
    const std::set<std::string> chain = around(lease.record.within, state_, lease.owner);
    if (lease.owner == user_ && chain.contains(within_)) return false;
    return lease.record.share > 1;
  }

 private:
  const FolderState& state_;
  const std::string& within_;
  uid_t user_;
  bool shared_ = false;
};

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

bool wants(const TicketRecord& ticket, const Candidate& candidate) {
  return std::ranges::any_of(ticket.wants, [&](const std::string& name) { return candidate.is(name); });
}

bool goes_before(const TicketInfo& ticket, const Place& place, const std::string& within) {
  if (ticket.file == place.ticket || ticket.stopped || !ticket.turn().before(place.turn())) return false;
  if (ticket.record.missing == 0 || ticket.record.within != within) return false;
  return within.empty() || ticket.owner == place.user;  // only that user can be inside
}

std::vector<Standing> standings(const FolderState& state, std::span<const Candidate> candidates, const Place& place,
                                const std::string& within, const std::set<std::string>& our_files,
                                const PassedOver& passed_over) {
  const std::set<std::string> ours_to_use = around(within, state, place.user);
  std::vector<Standing> result(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& candidate = candidates[i];
    Standing& standing = result[i];
    const Beside beside(state, candidate, within, ours_to_use, place.user);
    bool ours = false;
    bool working = false;
    for (const LeaseInfo& lease : state.leases) {
      if (!candidate.is(lease.gpu)) continue;
      if (our_files.contains(lease.file)) {
        ours = true;
        continue;
      }
      if (lease.readable && lease.owner == place.user && ours_to_use.contains(lease.record.id)) continue;
      if (narrows_what_is_not_ours(lease, state, ours_to_use, place.user) || beside(lease)) continue;
      ++standing.holders;
      standing.patience = std::min(standing.patience, lease.readable ? lease.record.share : 1);
      const bool works = !lease.readable || lease.record.kind != LeaseKind::collecting;
      if (standing.by == nullptr || (works && !working)) standing.by = &lease;
      working = working || works;
    }
    if (ours)
      standing.state = Standing::ours;
    else if (standing.holders > 0)
      standing.state = standing.space_for(place.share) ? Standing::shared
                       : working                       ? Standing::leased
                                                       : Standing::collecting;
    for (const TicketInfo& ticket : state.tickets) {
      if (!goes_before(ticket, place, within) || !wants(ticket.record, candidate)) continue;
      if (passed_over.contains({ticket.file, candidate.uuid})) continue;
      standing.spoken_for = &ticket;
      break;
    }
  }
  return result;
}

namespace {

// A waiter whose turn it is takes its GPU in milliseconds. One that has not by
// now is stopped or stuck, and those behind it need not be.
constexpr Duration kGrace = std::chrono::seconds(5);
constexpr Duration kLongestGrace = std::chrono::seconds(60);  // whoever speaks for it
// No look counts for more than this.
constexpr Duration kStep = std::chrono::seconds(1);

}  // namespace

std::set<std::string> IdleClaims::look(std::span<const Claim> claims,
                                       const std::function<bool(const std::string&)>& still_queues, Instant now) {
  due_.reset();
  std::set<std::string> free;
  std::set<std::string> too_long;
  for (const Claim& claim : claims) {
    free.insert(claim.uuid);
    Idle& idle = idle_.try_emplace(claim.uuid, Idle{.seen = now, .ticket = claim.ticket}).first->second;
    const Duration step = std::min<Duration>(now - idle.seen, kStep);
    idle.seen = now;
    idle.in_all += step;
    idle.for_ticket += step;
    if (idle.ticket != claim.ticket && !still_queues(idle.ticket)) idle.for_ticket = {};
    idle.ticket = claim.ticket;
    const Duration left = std::min(kGrace - idle.for_ticket, kLongestGrace - idle.in_all);
    if (left <= Duration::zero())
      too_long.insert(claim.uuid);
    else
      due_ = std::min(due_.value_or(Instant::max()), now + std::min(left, kStep));
  }
  std::erase_if(idle_, [&](const auto& entry) { return !free.contains(entry.first); });
  return too_long;
}

}  // namespace lull
