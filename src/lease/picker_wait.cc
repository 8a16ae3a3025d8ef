// Waiting for GPUs: events of the lease folder, and one sampler for those who do not use lull.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "base/units.h"
#include "lease/picker.h"

namespace lull {

namespace {

// After a change a GPU may still look busy (its utilisation is a mean over a
// moment): look again soon at first, then once a second.
constexpr Duration kFirstLook = std::chrono::milliseconds(100);
constexpr Duration kLongestLook = std::chrono::seconds(1);

// "2s" of one who had 1.999s left when it began to wait.
Duration rounded(Duration time) {
  using Tenths = std::chrono::duration<std::int64_t, std::deci>;
  return time < std::chrono::seconds(1) ? time : Duration(std::chrono::round<Tenths>(time));
}

}  // namespace

PickStep Picker::join_queue() {
  if (const auto told = keeper_->stand_by(); !told) return std::unexpected(Refusal::of(told.error()));
  pause_ = kFirstLook;
  sampled_ = true;  // just now
  return in_queue();
}

// One turn, and then sleep.
PickStep Picker::in_queue() {
  // Whoever comes joins the line first: it need not look at all who are in it.
  Result<std::vector<Standing>> standing = std::vector<Standing>();
  if (queue_->queued() || !sampled_) standing = queue_->look();
  if (!standing) return std::unexpected(Refusal::of(standing.error()));
  bool act = sampled_;
  bool tempting = false;
  for (const Standing& one : *standing) {
    tempting = tempting || one.open();
    act = act || (one.state == Standing::ours && one.spoken_for);
  }
  if (tempting && !sampled_ && !presume_fit(*standing)) judge_again();
  if (act || tempting) {
    const std::size_t before = queue_->kept().size();
    const auto done = queue_->turn(chooser());
    if (!done) return std::unexpected(Refusal::of(done.error()));
    if (*done || queue_->kept().size() > before) {
      judge_our_turn();  // somebody who does not use lull may be there
      const auto unfit = queue_->unfit_of_kept();
      if (*done && unfit.empty()) return finished();
      if (const auto given = queue_->give_back(unfit); !given) return std::unexpected(Refusal::of(given.error()));
    }
    standing = queue_->look();
    if (!standing) return std::unexpected(Refusal::of(standing.error()));
  }
  tell(*standing);

  covered_ = queue_->covered();
  foreign_ = !covered_ && foreign_use(*standing);
  if (covered_ && open_) {
    world_.close();  // it may be long until there is something for us to look at
    open_ = false;
  }
  std::optional<Instant> until = deadline_;
  look_again_ = world_.clock().now() + pause_;
  if (foreign_) until = until ? std::min(*until, look_again_) : look_again_;
  Sleep on = queue_->sleep(until);
  if (held_process_) on.events.push_back(held_process_->fd());
  return sleep(Phase::queueing, std::move(on));
}

PickStep Picker::woken_in_queue() {
  if (const auto woken = queue_->woken(); !woken) return std::unexpected(Refusal::of(woken.error()));
  if (held_process_ && held_process_->ended())
    return std::unexpected(
        Refusal::of({fmt::format("process {}, which was to hold them, has ended", held_process_->pid()), 0}));
  const Instant now = world_.clock().now();
  if (deadline_ && now >= *deadline_) return std::unexpected(late());
  const bool our_turn_comes = covered_ && !queue_->covered();
  sampled_ = our_turn_comes || (foreign_ && now >= look_again_);
  if (our_turn_comes)
    judge_our_turn();
  else if (sampled_)
    judge_again();
  pause_ = sampled_ ? std::min<Duration>(pause_ * 2, kLongestLook) : kFirstLook;
  return in_queue();
}

Refusal Picker::late() {
  const auto last = queue_->look();
  Refusal late = refusal(last ? *last : std::vector<Standing>());
  late.what = fmt::format("waited {} for {} GPU{}; {}", format_duration(rounded(*settings_.wait_limit)),
                          settings_.count, settings_.count == 1 ? "" : "s", late.what);
  late.kind = Refusal::late;
  return late;
}

// One late answer on a loaded machine is no reason to lose one's turn to the next in line. What hangs is late again.
void Picker::judge_our_turn() {
  judge_again();
  const bool late = std::ranges::any_of(candidate_, [&](std::size_t index) {
    const auto position = position_of(choices_[index]);
    return position && snapshot_.readings[*position].unanswered > Duration::zero();
  });
  if (late) judge_again();
}

// What was leased until this moment, and is free now, will do: it is looked at once we have it, and before anything
// runs on it. True: all that tempts us is of that kind.
bool Picker::presume_fit(const std::vector<Standing>& standing) {
  bool all = true;
  for (std::size_t i = 0; i < standing.size(); ++i) {
    Candidate& candidate = queue_->candidates()[i];
    if (!standing[i].open()) continue;
    if (standing[i].state == Standing::free && candidate.fit == Fit::unknown)
      candidate.fit = Fit::yes;
    else
      all = false;
  }
  return all;
}

// Nobody tells when that ends: it has to be looked for.
bool Picker::foreign_use(const std::vector<Standing>& standing) {
  for (std::size_t i = 0; i < standing.size(); ++i) {
    const Candidate& candidate = queue_->candidates()[i];
    if (standing[i].state == Standing::leased || standing[i].state == Standing::ours) continue;
    if ((standing[i].state == Standing::shared ? candidate.company : candidate.fit) == Fit::no) return true;
  }
  return false;
}

void Picker::tell(const std::vector<Standing>& standing) {
  Refusal now = refusal(standing);
  world_.waits({settings_.count, queue_->ahead(), queue_->kept().size(), std::move(now.reasons), std::move(now.kinds)});
}

}  // namespace lull
