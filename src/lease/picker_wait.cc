// Waiting for GPUs: events of the lease folder, and one sampler for those who do not use lull.

#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "lease/picker.h"

namespace lull {

namespace {

const SystemClock kClock;

// After a change a GPU may still look busy (its utilisation is a mean over a
// moment): look again soon at first, then once a second.
constexpr Duration kFirstLook = std::chrono::milliseconds(100);
constexpr Duration kLongestLook = std::chrono::seconds(1);

}  // namespace

PickResult Picker::pick_waiting() {
  const std::optional<Instant> deadline =
      settings_.wait_limit ? std::optional(kClock.now() + *settings_.wait_limit) : std::nullopt;
  const auto failed = [&](const Error& error) {
    world_.waits_no_more();
    return std::unexpected(Refusal{Refusal::failure, error.message(), {}, 0, 0});
  };
  if (const auto told = keeper_->stand_by(); !told) return failed(told.error());
  Duration pause = kFirstLook;
  bool sampled = true;  // the first sample was made just now
  while (true) {
    // Whoever comes joins the line first: it need not look at all who are in it.
    Result<std::vector<Standing>> standing = std::vector<Standing>();
    if (queue_->queued() || !sampled) standing = queue_->look();
    if (!standing) return failed(standing.error());
    bool act = sampled;
    bool tempting = false;
    for (const Standing& one : *standing) {
      tempting = tempting || one.open();
      act = act || (one.state == Standing::ours && one.spoken_for);
    }
    if (tempting && !sampled && !presume_fit(*standing)) judge_again();
    if (act || tempting) {
      const std::size_t before = queue_->kept().size();
      const auto done = queue_->turn(chooser());
      if (!done) return failed(done.error());
      if (*done || queue_->kept().size() > before) {
        judge_our_turn();  // somebody who does not use lull may be there
        const auto unfit = queue_->unfit_of_kept();
        if (*done && unfit.empty()) {
          world_.waits_no_more();
          return finished();
        }
        if (const auto given = queue_->give_back(unfit); !given) return failed(given.error());
      }
      standing = queue_->look();
      if (!standing) return failed(standing.error());
    }
    tell(*standing);

    const bool covered = queue_->covered();
    const bool foreign = !covered && foreign_use(*standing);
    if (covered && open_) {
      world_.close();  // it may be long until there is something for us to look at
      open_ = false;
    }
    std::optional<Instant> next = deadline;
    const Instant look_again = kClock.now() + pause;
    if (foreign) next = next ? std::min(*next, look_again) : look_again;
    if (const auto waited = queue_->wait(next, held_process_ ? held_process_->fd() : -1); !waited)
      return failed(waited.error());
    if (held_process_ && held_process_->ended())
      return failed(Error{fmt::format("process {}, which was to hold them, has ended", held_process_->pid()), 0});
    const Instant now = kClock.now();
    if (deadline && now >= *deadline) {
      world_.waits_no_more();
      const auto last = queue_->look();
      Refusal late = refusal(last ? *last : std::vector<Standing>());
      late.what = fmt::format("waited {} for {} GPU{}; {}", format_duration(*settings_.wait_limit), settings_.count,
                              settings_.count == 1 ? "" : "s", late.what);
      late.kind = Refusal::late;
      return std::unexpected(std::move(late));
    }
    const bool our_turn_comes = covered && !queue_->covered();
    sampled = our_turn_comes || (foreign && now >= look_again);
    if (our_turn_comes)
      judge_our_turn();
    else if (sampled)
      judge_again();
    pause = sampled ? std::min<Duration>(pause * 2, kLongestLook) : kFirstLook;
  }
}

// One late answer on a loaded machine is no reason to lose one's turn to the next in line. What hangs is late again.
void Picker::judge_our_turn() {
  judge_again();
  const bool late = std::ranges::any_of(candidate_, [&](std::size_t index) {
    const auto position = position_of(choices_[index].uuid);
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
  world_.waits({settings_.count, queue_->ahead(), queue_->kept().size(), refusal(standing).reasons});
}

}  // namespace lull
