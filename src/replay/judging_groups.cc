// Judging, the part that judges several GPUs as one: all of them, those of a host, those of a job.

#include <algorithm>
#include <numeric>
#include <utility>

#include "replay/judging.h"

namespace lull::replay {
namespace {

std::string job_label(const trace::Holder& holder, std::size_t number) {
  std::string name = holder.job;
  if (name.empty() && !holder.pids.empty()) name = holder.pids[0];
  if (name.empty()) name = std::to_string(number + 1);
  if (const std::string user = holder.user_text(); !user.empty()) name = user + "/" + name;
  return name;
}

}  // namespace

// The median one of the members decides, as of all GPUs where none of them has an interval.
const trace::Paced& Judging::together_gaps(std::span<const std::size_t> members) const {
  std::vector<std::size_t> paced;
  for (const std::size_t gpu : members)
    if (options_.pace[gpu] != 0) paced.push_back(gpu);
  if (paced.empty()) return options_.gaps.back();
  const auto middle = paced.begin() + static_cast<std::ptrdiff_t>(paced.size() / 2);
  std::ranges::nth_element(paced, middle, {}, [&](std::size_t gpu) { return options_.pace[gpu]; });
  return options_.gaps[*middle];
}

Judging::Gpu Judging::make_group(std::vector<std::size_t> members) {
  const trace::Paced& gaps = together_gaps(members);
  Gpu group = make_gpu(gaps.first, std::move(members));
  group.gaps = &gaps;
  return group;
}

void Judging::frames(std::span<const Block> gpus) {
  if (options_.per == Per::job) return frames_by_job(gpus);
  if (options_.per == Per::all) {
    if (gpus_.empty()) {
      std::vector<std::size_t> everyone(gpus.size());
      std::iota(everyone.begin(), everyone.end(), 0);
      gpus_.push_back(std::make_unique<Gpu>(make_group(std::move(everyone))));
    }
    return take(*gpus_[0], kAllGpus, gpus);
  }
  for (std::size_t host = gpus_.size(); host < options_.hosts.size(); ++host) {
    gpus_.push_back(std::make_unique<Gpu>(make_group(options_.hosts[host])));
    if (first_policy_ == 0) subjects_.push_back({options_.host_names[host], options_.hosts[host]});
  }
  for (std::size_t host = 0; host < gpus_.size(); ++host)
    if (const auto scope = with_rows(gpus, *gpus_[host], 0, gpus[0].size()); !scope[0].at.empty())
      take(*gpus_[host], host, scope);
}

// The members' samples, without the ticks of others at which none of them showed itself: those are none of theirs.
std::span<const Block> Judging::with_rows(std::span<const Block> gpus, const Gpu& of, std::size_t from,
                                          std::size_t to) {
  chosen_.clear();
  for (const std::size_t member : of.members) chosen_.push_back(gpus[member].part(from, to - from));
  const auto shown = [&](std::size_t i) {
    return std::any_of(chosen_.begin(), chosen_.end(),
                       [&](const Block& block) { return block.holder[i] != trace::kNoRow; });
  };
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < to - from; ++i)
    if (shown(i)) kept.push_back(i);
  if (kept.size() == to - from) return chosen_;
  chosen_at_.clear();
  for (const std::size_t i : kept) chosen_at_.push_back(chosen_[0].at[i]);
  const std::size_t width = options_.metrics.size() + 1;
  chosen_columns_.resize(chosen_.size() * width * kept.size());
  float* out = chosen_columns_.data();
  for (Block& block : chosen_) {
    block.at = chosen_at_;
    const auto squeeze = [&](std::span<const float>& column) {
      if (column.empty()) return;
      for (std::size_t k = 0; k < kept.size(); ++k) out[k] = column[kept[k]];
      column = {out, kept.size()};
      out += kept.size();
    };
    for (const Metric metric : options_.metrics) squeeze(block.value[lull::index_of(metric)]);
    squeeze(block.holder);
  }
  return chosen_;
}

// Of all GPUs, whoever has them.
void Judging::count_whole_work(std::span<const Block> gpus) {
  const trace::Paced& gaps = options_.gaps.back();
  if (!whole_) whole_.emplace(gaps.first);
  const std::span<const Instant> at = gpus[0].at;
  note_time(at);
  for (std::size_t from = 0; from < at.size();) {
    const std::size_t count = gaps.same_for(at, from);
    whole_->set_longest(gaps.before(at[from]));
    paced_.clear();
    for (const Block& block : gpus) paced_.push_back(block.part(from, count));
    if (first_policy_ == 0) whole_work_ += whole_->sum(paced_, 0, count).util_seconds;
    whole_->pass(paced_);
    from += count;
  }
}

void Judging::frames_by_job(std::span<const Block> gpus) {
  if (!jobs_) jobs_.emplace(gpus.size(), options_.host_of);
  count_whole_work(gpus);
  for (std::size_t from = 0; from < gpus[0].size();) {
    // What changes at this sample holds from it on.
    if (jobs_->next_change(gpus, from) == from) {
      jobs_->step(gpus, from, holders_);
      renew_jobs();
    }
    const std::size_t to = jobs_->next_change(gpus, from + 1);
    for (std::size_t j = 0; j < jobs_->jobs().size(); ++j) {
      if (!gpus_[j]) continue;
      if (const auto scope = with_rows(gpus, *gpus_[j], from, to); !scope[0].at.empty()) take(*gpus_[j], j, scope);
    }
    from = to;
  }
}

// A job that has other GPUs than before is judged anew, as live: armed if it was. What it was ended for stays.
void Judging::renew_jobs() {
  std::vector<JobFinder::Job>& jobs = jobs_->jobs();
  gpus_.resize(jobs.size());
  if (first_policy_ == 0) subjects_.resize(jobs.size());
  for (std::size_t j = 0; j < jobs.size(); ++j) {
    if (gpus_[j]) gpus_[j]->holder = jobs[j].holder;
    if (!jobs[j].changed) continue;
    if (jobs[j].gpus.empty()) {
      if (gpus_[j]) finish_job(j);
      continue;
    }
    Gpu fresh = make_group(jobs[j].gpus);
    fresh.holder = jobs[j].holder;
    if (gpus_[j]) take_over(*gpus_[j], j, fresh);
    gpus_[j] = std::make_unique<Gpu>(std::move(fresh));
    if (first_policy_ != 0) continue;
    if (subjects_[j].label.empty()) subjects_[j].label = job_label(holders_[jobs[j].holder], j);
    for (const std::size_t gpu : jobs[j].gpus)
      if (std::find(subjects_[j].gpus.begin(), subjects_[j].gpus.end(), gpu) == subjects_[j].gpus.end())
        subjects_[j].gpus.push_back(gpu);
  }
}

void Judging::take_over(Gpu& old, std::size_t index, Gpu& fresh) {
  for (std::size_t t = 0; t < old.trials.size(); ++t) {
    fresh.trials[t].fate = old.trials[t].fate;
    fresh.trials[t].decider.follow(old.trials[t].decider);
  }
  const bool living = std::exchange(old.living, false);
  finish_trials(old, index, StretchEnd::unknown, Leaving::cut_off);
  fresh.totals = std::move(old.totals);
  fresh.accounts = old.accounts;
  fresh.met = old.met;
  fresh.living = living;
}

void Judging::finish_job(std::size_t job) {
  finish_trials(*gpus_[job], job, StretchEnd::over, Leaving::released);
  if (first_policy_ == 0) totals_[0] += gpus_[job]->totals;
  gpus_[job].reset();
}

}  // namespace lull::replay
