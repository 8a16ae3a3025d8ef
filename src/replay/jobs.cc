#include "replay/jobs.h"

#include <algorithm>
#include <utility>

namespace lull::replay {
namespace {

// Only their users tell whether the two are the same job, though one of them says more of itself: a user has several.
bool may_be_another(const trace::Holder& a, const trace::Holder& b) {
  const auto both = [&](auto trace::Holder::* part) { return !(a.*part).empty() && !(b.*part).empty(); };
  if (both(&trace::Holder::job) || both(&trace::Holder::pids) || both(&trace::Holder::lease)) return false;
  return !a.job.empty() || !b.job.empty() || !a.pids.empty() || !b.pids.empty();
}

}  // namespace

std::size_t JobFinder::next_change(std::span<const Block> gpus, std::size_t from) const {
  std::size_t first = gpus[0].size();
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
    for (std::size_t i = from; i < first; ++i)
      if (told(gpus[gpu].holder[i]) && gpus[gpu].holder[i] != now_[gpu]) first = i;
  return first;
}

void JobFinder::leave(std::size_t gpu) {
  if (job_[gpu] == kNoJob) return;
  Job& job = jobs_[job_[gpu]];
  std::erase(job.gpus, gpu);
  job.changed = true;
  job_[gpu] = kNoJob;
}

// The job that this holder is of: one that lives on the same host, or a new one. None where a row that lacks cells may
// be of one or the other: a later row tells.
std::size_t JobFinder::find(std::size_t gpu, float holder, const trace::KnownHolders& holders) {
  bool doubtful = false;
  for (std::size_t j = 0; j < jobs_.size(); ++j) {
    const Job& job = jobs_[j];
    if (job.gpus.empty()) continue;
    const bool named = !holders[holder].job.empty();  // by a column: that may be a job of many hosts
    if (!named && host_of_[job.gpus[0]] != host_of_[gpu]) continue;
    if (!holders[job.holder].compare(holders[holder]).value_or(false)) continue;
    if (!may_be_another(holders[job.holder], holders[holder])) return j;
    doubtful = true;
  }
  if (doubtful && holders[holder].pids.empty() && holders[holder].job.empty()) return kNoJob;
  jobs_.push_back({.holder = holder, .gpus = {}});
  return jobs_.size() - 1;
}

void JobFinder::step(std::span<const Block> gpus, std::size_t sample, trace::KnownHolders& holders) {
  for (Job& job : jobs_) job.changed = false;
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu) {
    const float holder = gpus[gpu].holder[sample];
    if (!told(holder) || holder == now_[gpu]) continue;
    now_[gpu] = holder;
    const float before = std::exchange(known_[gpu], holder);
    if (holder == trace::kNobody) {
      leave(gpu);
      continue;
    }
    if (job_[gpu] != kNoJob && before > trace::kNobody && holders.same_job(before, holder)) {
      Job& same = jobs_[job_[gpu]];  // the same job, of which a process came or went, or a row that lacks a cell
      known_[gpu] = holders.joined(before, holder);
      same.holder = holders.joined(same.holder, holder);
      continue;
    }
    leave(gpu);
    job_[gpu] = find(gpu, holder, holders);
    if (job_[gpu] == kNoJob) continue;
    Job& job = jobs_[job_[gpu]];
    job.holder = holders.joined(job.holder, holder);
    job.gpus.insert(std::lower_bound(job.gpus.begin(), job.gpus.end(), gpu), gpu);
    job.changed = true;
  }
}

}  // namespace lull::replay
