// Taking GPUs that suit at once, and what is said where that cannot be.

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/calendar.h"
#include "base/text.h"
#include "base/units.h"
#include "lease/picker.h"

namespace lull {

namespace {

constexpr Duration kSettle = std::chrono::milliseconds(500);
constexpr int kRounds = 8;  // of choosing again, when a GPU turned out to be in use after all

// Just freed and spoken for: those who wait take theirs in a moment, the rest is for
// us. Or leased to a job that has ended: its keeper lets go as soon as it is scheduled.
bool about_to_be_free(const Standing& standing) {
  if (standing.state == Standing::free) return standing.spoken_for != nullptr;
  return standing.state == Standing::leased && standing.by != nullptr && standing.by->record.kind != LeaseKind::hold &&
         alive(standing.by->record.holder) == false;
}

// Of a command line that may fill a screen: what tells it from others.
std::string beginning_of(std::string command) {
  constexpr std::size_t kMost = 60;
  if (command.size() <= kMost) return command;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(command[end]) & 0xC0U) == 0x80U) --end;  // no half letter
  return command.substr(0, end) + "...";
}

std::string kind_of(const Standing* standing, const Judgement& judgement) {
  if (standing == nullptr)
    return judgement.lasting ? "not suitable" : judgement.in_use ? "in use" : "not as wished now";
  return standing->state == Standing::leased       ? "leased"
         : standing->state == Standing::collecting ? "kept by others who wait"
                                                   : "for others who wait";
}

}  // namespace

std::string Picker::who(const LeaseInfo& lease) const {
  std::string text = world_.user_name(lease.owner);
  if (lease.record.kind == LeaseKind::hold && lease.record.until)
    return text + ", held until " + format_local(*lease.record.until, "%H:%M:%S");
  if (!lease.record.command.empty()) text += ": " + printable(lease.record.command);
  if (lease.record.since) {
    const Duration age = world_.clock().wall() - *lease.record.since;
    text += fmt::format(", for {}", format_duration(std::chrono::floor<std::chrono::seconds>(age)));
  }
  return text;
}

std::string Picker::standing_text(const Standing& standing) const {
  if (standing.state == Standing::leased)
    return standing.by->readable
               ? fmt::format("leased ({}{})", who(*standing.by),
                             standing.holders > 1 ? fmt::format("; {} share it", standing.holders) : "")
               : fmt::format("its lease file {} may not be read", standing.by->file);
  if (standing.state == Standing::collecting) return fmt::format("kept by one who collects ({})", who(*standing.by));
  if (standing.spoken_for)
    return fmt::format("{} waits for it (pid {})", world_.user_name(standing.spoken_for->owner),
                       standing.spoken_for->record.waiter.pid);
  return "";
}

// " (ada: python train.py; bob: ./infer)": whose processes are on a GPU that nobody has leased; "" where none can be
// seen.
std::string Picker::users_text(const Choice& choice) const {
  constexpr std::size_t kMost = 3;
  const auto position = position_of(choice);
  if (!position || !snapshot_.readings[*position].tenants) return "";
  std::vector<std::string> users;
  for (const Tenant& tenant : *snapshot_.readings[*position].tenants) {
    if (!tenant.here || tenant.mps_server) continue;
    const std::string owner = world_.owner_of(tenant.pid);
    const std::string command = beginning_of(world_.command_of(tenant.pid));
    if (owner.empty()) continue;
    std::string user = command.empty() ? owner : owner + ": " + command;
    if (std::ranges::find(users, user) == users.end()) users.push_back(std::move(user));
  }
  std::string text;
  for (std::size_t i = 0; i < std::min(users.size(), kMost); ++i) text += (i == 0 ? " (" : "; ") + users[i];
  if (users.size() > kMost) text += fmt::format("; {} more", users.size() - kMost);
  return text.empty() ? "" : text + ")";
}

Chooser Picker::chooser() {
  read_joins();
  return [this](std::span<const std::size_t> open, std::span<const std::size_t> kept, std::size_t count) {
    std::map<std::size_t, std::size_t> candidate_at;  // position -> candidate
    const auto positions = [&](std::span<const std::size_t> candidates) {
      std::vector<std::size_t> result;
      for (const std::size_t candidate : candidates)
        if (const auto position = position_of(choices_[candidate_[candidate]])) {
          candidate_at[*position] = candidate;
          result.push_back(*position);
        }
      return result;
    };
    std::vector<std::size_t> result;
    for (const std::size_t position :
         choose(settings_.best, positions(open), positions(kept), count, snapshot_.readings, topology_, random_))
      result.push_back(candidate_at[position]);
    return result;
  };
}

Refusal Picker::refusal(const std::vector<Standing>& standing) {
  Refusal refusal;
  std::map<std::size_t, std::string> taken;            // by choice
  std::map<std::size_t, const Standing*> standing_of;  // where that is what speaks against it
  std::set<std::size_t> shared;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    taken[candidate_[i]] = standing_text(standing[i]);
    if (!taken[candidate_[i]].empty()) standing_of[candidate_[i]] = &standing[i];
    if (standing[i].state == Standing::shared) shared.insert(candidate_[i]);
  }
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Judgement& judgement = shared.contains(i) ? choices_[i].in_company : choices_[i].judgement;
    const std::string& why = taken[i].empty() ? judgement.why : taken[i];
    if (why.empty()) {
      ++refusal.fitting;
      continue;
    }
    ++refusal.kinds[kind_of(standing_of.contains(i) ? standing_of[i] : nullptr, judgement)];
    refusal.reasons.push_back(fmt::format("GPU {}: {}{}", choices_[i].label, why,
                                          taken[i].empty() && !judgement.lasting ? users_text(choices_[i]) : ""));
  }
  refusal.wanted = settings_.count;
  refusal.waiting_helps = !settings_.wait && settings_.lease && candidate_.size() >= settings_.count;
  const std::string_view place = within_.empty() ? "" : " in the lease of this job";
  if (choices_.empty())
    refusal.what = fmt::format("there is no GPU{}", place);
  else if (choices_.size() < settings_.count)
    refusal.what = fmt::format("{} GPUs asked for, there {} only {}{}", settings_.count,
                               choices_.size() == 1 ? "is" : "are", choices_.size(), place);
  else if (refusal.fitting == 0)
    refusal.what = fmt::format("no GPU{} fits", place);
  else
    refusal.what = fmt::format("{} GPUs asked for, {} fit{}{}", settings_.count, refusal.fitting,
                               refusal.fitting == 1 ? "s" : "", place);
  return refusal;
}

PickResult Picker::finished() {
  if (settings_.hold) queue_->demand().pattern.until = world_.clock().wall() + *settings_.hold;
  Picked picked;
  for (const std::size_t candidate : queue_->kept())
    if (const auto position = position_of(choices_[candidate_[candidate]])) picked.devices.push_back(*position);
  auto locks = queue_->finish();
  if (!locks) return std::unexpected(Refusal::of(locks.error()));
  picked.locks = *std::move(locks);
  picked.lease = queue_->demand().pattern.id;
  complete(picked);
  return picked;
}

void Picker::complete(Picked& picked) const {
  std::sort(picked.devices.begin(), picked.devices.end());
  picked.snapshot = snapshot_;
  for (const std::size_t position : picked.devices)
    for (const Choice& choice : choices_)
      if (position_of(choice) == position) picked.judgements.push_back(choice.judgement);
}

PickStep Picker::pick_now() {
  if (!settings_.holds()) return pick_unheld();
  for (; rounds_ < kRounds; ++rounds_) {
    const auto taken = queue_->take_now(chooser());
    if (!taken) return std::unexpected(Refusal::of(taken.error()));
    if (*taken) {
      judge_again();  // once more: somebody who does not use lull may have come in between
      if (queue_->unfit_of_kept().empty()) return finished();
      const auto kept = queue_->kept();
      if (const auto given = queue_->give_back(kept); !given) return std::unexpected(Refusal::of(given.error()));
      continue;
    }
    const auto standing = queue_->look();
    if (!standing) return std::unexpected(Refusal::of(standing.error()));
    if (fitting_now(*standing).size() >= settings_.count) continue;  // given back between our two looks
    if (!settling(*standing)) return unless_it_only_looks_busy(std::unexpected(refusal(*standing)));
    return sleep(Phase::settling, queue_->sleep(settled_));
  }
  const auto standing = queue_->look();
  return unless_it_only_looks_busy(std::unexpected(refusal(standing ? *standing : std::vector<Standing>())));
}

// Candidates that nobody has, or that we may share, and that suit.
std::vector<std::size_t> Picker::fitting_now(const std::vector<Standing>& standing) const {
  std::vector<std::size_t> fitting;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const Choice& choice = choices_[candidate_[i]];
    const Judgement& judgement = standing[i].state == Standing::shared ? choice.in_company : choice.judgement;
    if (standing[i].open() && judgement.fits) fitting.push_back(i);
  }
  return fitting;
}

bool Picker::settling(const std::vector<Standing>& standing) const {
  if (world_.clock().now() >= settled_) return false;
  for (std::size_t i = 0; i < standing.size(); ++i)
    if (about_to_be_free(standing[i]) && choices_[candidate_[i]].judgement.fits) return true;
  return false;
}

// Only a choice: nothing is locked, but what others hold is respected.
PickStep Picker::pick_unheld() {
  std::vector<Standing> standing(candidate_.size());
  if (queue_) {
    auto looked = queue_->look();
    if (!looked) return std::unexpected(Refusal::of(looked.error()));
    standing = *std::move(looked);
  }
  const std::vector<std::size_t> open = fitting_now(standing);
  if (open.size() < settings_.count) {
    if (queue_ && settling(standing)) return sleep(Phase::settling, queue_->sleep(settled_));
    return unless_it_only_looks_busy(std::unexpected(refusal(standing)));
  }
  Picked picked;
  for (const std::size_t candidate : chooser()(open, {}, settings_.count))
    if (const auto position = position_of(choices_[candidate_[candidate]])) picked.devices.push_back(*position);
  complete(picked);
  return PickResult(std::move(picked));
}

PickStep Picker::pick_at_once() {
  settled_ = world_.clock().now() + kSettle;
  rounds_ = 0;
  return pick_now();
}

Result<> Picker::hand_to_keeper(const Picked& picked) {
  keeper_->close_for_us(queue_->end_watch());
  if (settings_.hold) return keeper_->keep_for(*settings_.hold, picked.locks);
  if (held_process_) return keeper_->keep_while(held_process_->fd(), picked.locks);
  if (!self_ || !*self_) return fail("no handle on this process (pidfd_open)");
  return keeper_->keep_while(self_->fd(), picked.locks);
}

}  // namespace lull
