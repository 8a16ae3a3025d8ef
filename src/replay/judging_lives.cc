// Judging, the part that follows lives: what the first firing in each would have ended, and what came of it.

#include <algorithm>
#include <utility>

#include "replay/judging.h"

namespace lull::replay {

// Whether a life may end before the trace does.
bool Judging::tells_lives() const {
  const auto has = [&](Metric metric) {
    return std::find(options_.metrics.begin(), options_.metrics.end(), metric) != options_.metrics.end();
  };
  return options_.who || has(Metric::mem_used) || has(Metric::procs);
}

void Judging::find_lives(Gpu& gpu, std::span<const Block> all) {
  // A job's GPUs are its own for as long as it has them.
  if (options_.per == Per::job)
    pieces_.assign(1, {0, all[0].size(), true, !gpu.met, gpu.holder});
  else
    gpu.lives.feed(all, holders_, pieces_);
  for (Piece& piece : pieces_) {
    piece.work = gpu.accounts.sum(all, piece.from, piece.to);
    if (options_.per != Per::job) gpu.totals.work_seconds += piece.work.util_seconds;
  }
}

void Judging::follow(Gpu& gpu, std::size_t index, std::size_t number, std::span<const Block> all, std::size_t skipped) {
  Trial& trial = gpu.trials[number];
  const std::size_t policy = first_policy_ + number;
  Totals& totals = policy == 0 ? gpu.totals : totals_[policy];
  bool living = gpu.living;
  for (const Piece& piece : pieces_) {
    if (living && (piece.begins || !piece.held)) end_life(totals, trial, policy, index, Leaving::released);
    living = piece.held;
    if (!piece.held) continue;
    if (piece.begins) {
      const bool with_the_trace = piece.from == 0 && !gpu.met;
      trial.of_life = with_the_trace
                          ? nullptr
                          : std::make_unique<Decider>(fresh_for(gpu.members.size())[number].for_gap(gpu.judged_gap));
    }
    follow_piece(gpu, trial, piece, all, skipped);
  }
}

void Judging::follow_piece(Gpu& gpu, Trial& trial, const Piece& piece, std::span<const Block> all,
                           std::size_t skipped) {
  const std::size_t from = std::max(piece.from, skipped);
  if (from >= piece.to) return;
  trial.fate.holder = piece.holder;
  const auto work_from = [&](std::size_t sample) {
    return sample == piece.from ? piece.work : gpu.accounts.sum(all, sample, piece.to);
  };
  if (!trial.of_life) {
    trial.fate.see(answers_, all[0].at.subspan(skipped), from - skipped, piece.to - skipped,
                   [&](std::size_t sample) { return work_from(sample + skipped); });
    return;
  }
  part_.clear();
  for (const Block& block : all) part_.push_back(block.part(from, piece.to - from));
  if (!trial.of_life->feed(part_, part_answers_)) return;
  trial.fate.see(part_answers_, part_[0].at, 0, piece.to - from,
                 [&](std::size_t sample) { return work_from(sample + from); });
}

void Judging::end_life(Totals& totals, Trial& trial, std::size_t policy, std::size_t index, Leaving how) {
  const Fate fate = std::exchange(trial.fate, {});
  ++totals.jobs;
  if (!fate.ended) return;
  ++totals.ended;
  totals.lost_seconds += fate.after.util_seconds;
  const double saved = fate.back ? 0 : fate.after.seen_seconds;
  totals.saved_seconds += saved;
  if (fate.back) {
    ++totals.worked_again;
    how = Leaving::came_back;
  }
  totals.back.add((fate.back ? *fate.back : fate.last) - fate.at, how);
  if (policy == 0 && ends_.size() < options_.most_firings)
    ends_.push_back({index, fate.holder, fate.at, fate.back, how, fate.after.util_seconds, saved});
}

}  // namespace lull::replay
