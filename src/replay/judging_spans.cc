// Judging, the part that follows job spans: what the first firing in each would have ended, and what came of it.

#include <algorithm>
#include <utility>

#include "replay/judging.h"

namespace lull::replay {

// Whether a span may end before the trace does.
bool Judging::shows_job_spans() const {
  const auto has = [&](Metric metric) {
    return std::find(options_.metrics.begin(), options_.metrics.end(), metric) != options_.metrics.end();
  };
  return options_.who || has(Metric::mem_used) || has(Metric::procs);
}

void Judging::find_job_spans(Gpu& gpu, std::span<const Block> all) {
  // A job's GPUs are its own for as long as it has them.
  if (options_.per == Per::job)
    pieces_.assign(1, {0, all[0].size(), true, !gpu.met, gpu.holder});
  else
    gpu.spans.feed(all, holders_, pieces_);
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
      trial.fate.began = all[0].at[piece.from];
      const bool with_the_trace = piece.from == 0 && !gpu.met;
      trial.of_life = with_the_trace
                          ? nullptr
                          : std::make_unique<Decider>(fresh_for(gpu.members.size())[number].for_gap(gpu.judged_gap));
    }
    trial.fate.work_seconds += piece.work.util_seconds;
    trial.fate.told = piece.told;
    trial.fate.left_out = is_left_out(piece.holder);
    follow_piece(gpu, number, piece, all, skipped);
  }
}

void Judging::follow_piece(Gpu& gpu, std::size_t number, const Piece& piece, std::span<const Block> all,
                           std::size_t skipped) {
  Trial& trial = gpu.trials[number];
  const WorkedBy by = worked_by_[first_policy_ + number];
  const std::size_t from = std::max(piece.from, skipped);
  if (from >= piece.to) return;
  trial.fate.holder = piece.holder;
  if (!trial.of_life) {
    trial.fate.see(answers_, all[0].at.subspan(skipped), from - skipped, piece.to - skipped,
                   {all, gpu.accounts, answers_.condition, skipped, by, &piece});
    return;
  }
  part_.clear();
  for (const Block& block : all) part_.push_back(block.part(from, piece.to - from));
  if (!trial.of_life->feed(part_, part_answers_)) return;
  trial.fate.see(part_answers_, part_[0].at, 0, piece.to - from,
                 {all, gpu.accounts, part_answers_.condition, from, by, &piece});
}

// As live: where users matter, a job whose user is not told is left alone.
bool Judging::is_left_out(float holder) const {
  if (options_.except_users.empty()) return false;
  if (!(holder > trace::kNobody)) return true;
  const std::vector<std::string>& users = holders_[holder].users;
  return users.empty() || std::ranges::any_of(users, [&](const std::string& user) {
           return std::ranges::find(options_.except_users, user) != options_.except_users.end();
         });
}

void Judging::end_life(Totals& totals, Trial& trial, std::size_t policy, std::size_t index, Leaving how) {
  const Fate fate = std::exchange(trial.fate, {});
  const JobKey job{index, fate.began};
  if (!fate.told && fate.last - fate.began < shortest_) return;
  if (fate.left_out) {
    if (policy != 0) return;
    totals.work_seconds -= fate.work_seconds;
    ++left_out_;
    return;
  }
  ++totals.jobs;
  if (policy == 0) intervals_.add_job(job, fate.work_seconds);
  if (!fate.ended) return;
  if (fate.back) how = Leaving::came_back;
  totals.add_end(fate, how);
  if (fate.lost_seconds > 0) losses_[policy].push_back({job, fate.lost_seconds});
  if ((policy == 0 ? ends_[0].size() : other_ends_) >= options_.most_firings) return;
  if (policy != 0) ++other_ends_;
  ends_[policy].push_back(
      {index, fate.holder, fate.at, fate.back, how, fate.lost_seconds, fate.freed_seconds, fate.last, fate.followed()});
}

}  // namespace lull::replay
