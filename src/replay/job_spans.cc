#include "replay/job_spans.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "gpu/snapshot.h"

namespace lull::replay {
namespace {

// More than nothing and less than this is not a GPU's memory in bytes: the column has another unit than it seems.
constexpr float kLeastBytes = 512 << 10;

float value_at(std::span<const float> column, std::size_t i) { return column.empty() ? kUnknownSample : column[i]; }

bool may_be_empty(std::span<const float> column, float most) {
  return std::any_of(column.begin(), column.end(), [&](float value) { return value <= most; });
}

}  // namespace

void EmptyLevels::see(std::size_t gpu, const Block& block) {
  if (gpu >= least_.size()) least_.resize(gpu + 1, std::numeric_limits<float>::infinity());
  for (const float value : block[Metric::mem_used])
    if (value < least_[gpu] && (value == 0 || value >= kLeastBytes)) least_[gpu] = value;
}

float EmptyLevels::limit(std::size_t gpu) const {
  return gpu < limits_.size() ? limits_[gpu] : static_cast<float>(kEmptyCard);
}

bool EmptyLevels::settle() {
  std::vector<float> found;
  for (const float least : least_)
    found.push_back(std::max(static_cast<float>(kEmptyCard), least <= kMostDrawn ? least * 1.5F : 0.0F));
  bool same = true;
  for (std::size_t gpu = 0; gpu < found.size(); ++gpu) same = same && limit(gpu) == found[gpu];
  limits_ = std::move(found);
  return same;
}

SpanFinder::Having SpanFinder::having(const Block& block, std::size_t i, float limit) {
  const float holder = value_at(block.holder, i);
  if (holder >= trace::kNobody) return holder == trace::kNobody ? Having::nobody : Having::somebody;
  const float processes = value_at(block[Metric::procs], i);
  if (processes > 0) return Having::somebody;
  const float memory = value_at(block[Metric::mem_used], i);
  if (memory > limit) return Having::memory;
  if (memory == 0 || memory >= kLeastBytes || processes == 0) return Having::nobody;
  return value_at(block[Metric::util], i) >= kWorking ? Having::somebody : Having::unknown;
}

void SpanFinder::see(Having having, float holder, trace::KnownHolders& holders, std::size_t i,
                     std::vector<Piece>& out) {
  bool begins = false;
  const bool named = holder > trace::kNobody;
  if (having == Having::nobody) {
    alive_ = false;
  } else if (!alive_) {
    // If nothing tells, it has a job: that it has none must be recorded.
    begins = having >= Having::memory || !any_;
    alive_ = begins;
  } else if (named && holder_ > trace::kNobody && holder != row_ && !holders.same_job(holder_, holder)) {
    begins = true;
  }
  if (begins) {
    holder_ = row_ = kUnknownSample;
    told_ = false;
  }
  told_ = told_ || having == Having::somebody || having == Having::unknown;
  if (alive_ && named && holder != row_) {
    holder_ = holders.joined(holder_, holder);
    row_ = holder;
  }
  any_ = true;
  if (out.empty() || begins || out.back().held != alive_) out.push_back({i, i, alive_, begins});
  out.back().to = i + 1;
  out.back().holder = alive_ ? holder_ : kUnknownSample;
  out.back().told = told_;
}

void SpanFinder::feed(std::span<const Block> scope, trace::KnownHolders& holders, std::vector<Piece>& out) {
  out.clear();
  const std::size_t count = scope[0].size();
  // Mostly nothing happens: then one look at each column is enough.
  const bool one = scope.size() == 1;
  const float most_empty = *std::max_element(limits_.begin(), limits_.end());
  const bool quiet =
      alive_ && told_ && std::all_of(scope.begin(), scope.end(), [&](const Block& block) {
        return std::all_of(block.holder.begin(), block.holder.end(),
                           [&](float h) { return h == row_ || std::isnan(h) || (!one && h > trace::kNobody); }) &&
               !may_be_empty(block[Metric::mem_used], most_empty) && !may_be_empty(block[Metric::procs], 0);
      });
  if (quiet) {
    out.push_back({0, count, true, false, holder_});
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    Having all = Having::nobody;  // the most that any of them says
    for (std::size_t gpu = 0; gpu < scope.size(); ++gpu) all = std::max(all, having(scope[gpu], i, limits_[gpu]));
    see(all, one ? value_at(scope[0].holder, i) : kUnknownSample, holders, i, out);
  }
}

Work Accounts::sum(std::span<const Block> scope, std::size_t from, std::size_t to) const {
  const std::span<const Instant> at = scope[0].at;
  double seen = 0;
  double util = 0;
  Duration missed{};
  for (std::size_t i = from; i < to; ++i) {
    if (i == 0 && !last_) continue;
    const std::int64_t since = (at[i] - (i == 0 ? *last_ : at[i - 1])).count();
    if (since > longest_) {
      missed += Duration(since);
      continue;
    }
    seen += static_cast<double>(since);
    for (const Block& block : scope) {
      const float value = value_at(block[Metric::util], i);
      if (value >= kWorking) util += static_cast<double>(value) * static_cast<double>(since);
    }
  }
  return {util / 1e11, seen / 1e9 * static_cast<double>(scope.size()), missed};
}

std::optional<Instant> Accounts::long_gap(std::span<const Instant> at, std::size_t from, std::size_t to) const {
  for (std::size_t i = from; i < to; ++i) {
    if (i == 0 && !last_) continue;
    const Instant before = i == 0 ? *last_ : at[i - 1];
    if (at[i] - before > std::max(Duration(longest_), kShortGap)) return before;
  }
  return std::nullopt;
}

// Where the rule asks for a high utilisation, it looks for hangs.
WorkedBy worked_by(const Rule& rule, bool has_utilisation) {
  if (!has_utilisation) return WorkedBy::rule;
  std::vector<bool> negated(rule.nodes.size());
  for (std::size_t i = rule.nodes.size(); i-- > 0;) {
    const auto pass = [&](NodeId operand, bool flipped) { negated[operand] = negated[i] != flipped; };
    const Node& node = rule.nodes[i];
    if (const auto* both = std::get_if<And>(&node)) pass(both->left, false), pass(both->right, false);
    if (const auto* either = std::get_if<Or>(&node)) pass(either->left, false), pass(either->right, false);
    if (const auto* inverse = std::get_if<Not>(&node)) pass(inverse->operand, true);
    if (const auto* held = std::get_if<Held>(&node)) pass(held->operand, false);
    if (const auto* each = std::get_if<Each>(&node)) pass(each->operand, false);
    const auto* one = std::get_if<Comparison>(&node);
    if (one == nullptr || one->metric != Metric::util) continue;
    const bool above = one->compare == Compare::above || one->compare == Compare::at_least;
    const bool below = one->compare == Compare::below || one->compare == Compare::at_most;
    if (negated[i] ? below : above) return WorkedBy::utilisation_without_hang;
  }
  return WorkedBy::utilisation;
}

bool Followed::worked(std::size_t sample) const {
  const bool rule_says_no = condition[sample] == Truth::no;
  if (by == WorkedBy::rule) return rule_says_no;
  bool used = false;
  bool unknown = false;
  for (const Block& block : scope) {
    const float util = value_at(block[Metric::util], sample + offset);
    used = used || util >= kWorking;
    unknown = unknown || std::isnan(util);
  }
  if (by == WorkedBy::utilisation_without_hang) return (used || unknown) && rule_says_no;
  return used || (unknown && rule_says_no);
}

std::size_t Followed::first_worked(std::size_t from, std::size_t to) const {
  while (from < to && !worked(from)) ++from;
  return from;
}

Work Followed::work(std::size_t from, std::size_t to) const {
  if (by != WorkedBy::utilisation_without_hang)
    return piece != nullptr && piece->from == from + offset && piece->to == to + offset
               ? piece->work
               : accounts.sum(scope, from + offset, to + offset);
  Work all;
  for (std::size_t i = from; i < to; ++i) {
    Work one = accounts.sum(scope, i + offset, i + offset + 1);
    if (!worked(i)) one.util_seconds = 0;
    all += one;
  }
  return all;
}

void Fate::see(const PolicyAnswers& answers, std::span<const Instant> at_of, std::size_t from, std::size_t to,
               const Followed& followed) {
  std::size_t next = from;
  last = at_of[to - 1];
  if (!ended) {
    const std::size_t fired = next_bit(answers.fires, from, to);
    if (fired == to) return;
    ended = true;
    at = at_of[fired];
    next = fired + 1;
  }
  if (next == to) return;
  const Work after = followed.work(next, to);
  lost_seconds += after.util_seconds;
  missed += after.missed;
  if (back) return;
  const std::size_t worked = followed.first_worked(next, to);
  if (after.missed > kShortGap && !lost_sight) lost_sight = followed.long_gap(next, std::min(to, worked + 1));
  freed_seconds += worked == to ? after.seen_seconds : followed.work(next, worked).seen_seconds;
  if (worked != to) back = at_of[worked];
}

std::size_t Fate::next_bit(const Mask& mask, std::size_t from, std::size_t to) {
  while (from < to) {
    const Word rest = mask[from / kWordSamples] >> (from % kWordSamples);
    if (rest != 0) return std::min(to, from + static_cast<std::size_t>(std::countr_zero(rest)));
    from += kWordSamples - from % kWordSamples;
  }
  return to;
}

// ---- jobs

namespace {

// Only their users tell whether the two are the same job, though one of them says more of itself: a user has several.
bool may_be_another(const trace::RecordedJob& a, const trace::RecordedJob& b) {
  const auto both = [&](auto trace::RecordedJob::* part) { return !(a.*part).empty() && !(b.*part).empty(); };
  if (both(&trace::RecordedJob::job) || both(&trace::RecordedJob::pids) || both(&trace::RecordedJob::lease))
    return false;
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
