#include "replay/judging.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace lull::replay {
namespace {

constexpr std::size_t kOverhead = 32;          // of an allocation, about
constexpr std::size_t kLeastColumns = 64;      // of a GPU in the picture
constexpr std::size_t kAllColumns = 1U << 21;  // of all GPUs in the picture

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
bool is_set(const Mask& mask, std::size_t i) { return bit(mask, i); }
void set(Mask& mask, std::size_t i, bool to) {
  const Word one = Word{1} << (i % kWordSamples);
  Word& word = mask[i / kWordSamples];
  word = to ? word | one : word & ~one;
}

}  // namespace

Judging::Judging(JudgingOptions options) : options_(std::move(options)) {
  totals_.resize(options_.policies.size());
  columns_each_ = options_.picture_columns;
}

std::size_t Judging::take_policies(std::size_t from) {
  const std::size_t gpus = std::max<std::size_t>(1, options_.gpus);
  first_policy_ = from;
  fresh_.clear();
  bytes_each_ = sizeof(Gpu) + sizeof(Outcome) + 64 * kOverhead;  // with the intervals that differ
  if (options_.every) bytes_each_ += Resampler({.metrics = options_.metrics, .gpus = gpus}).bytes();
  EvaluatorOptions evaluating;
  evaluating.gpus = gpus;
  evaluating.missing = options_.missing;
  for (std::size_t i = from; i < options_.policies.size(); ++i) {
    PolicyEvaluator evaluator = PolicyEvaluator::compile(options_.policies[i], evaluating);
    const std::size_t bytes = evaluator.bytes() + sizeof(Trial) - sizeof(PolicyEvaluator) + kOverhead;
    if (!fresh_.empty() && bytes_each_ + bytes > options_.memory) break;
    bytes_each_ += bytes;
    fresh_.push_back(std::move(evaluator));
  }
  return from + fresh_.size();
}

void Judging::restart() {
  gpus_.clear();
  wanted_ = 0;
  std::fill(totals_.begin() + static_cast<std::ptrdiff_t>(first_policy_),
            totals_.begin() + static_cast<std::ptrdiff_t>(first_policy_ + fresh_.size()), Totals{});
  right_gaps_ = true;
  first_.reset();
  last_ = {};
  if (first_policy_ != 0) return;
  outcomes_.clear();
  strips_.clear();
  firings_.clear();
  columns_each_ = options_.picture_columns;
}

bool Judging::wants(std::size_t) {
  if (wanted_ > 0 && (wanted_ + 1) * bytes_each_ > options_.memory) return false;
  ++wanted_;
  return true;
}

std::int64_t Judging::guess_gap(std::size_t index, const Block& first) const {
  if (options_.gap) return options_.gap->count();
  if (index < known_gaps_.size()) return known_gaps_[index];
  std::vector<std::int64_t> intervals;
  for (std::size_t i = 1; i < first.size(); ++i) intervals.push_back((first.at[i] - first.at[i - 1]).count());
  const auto median = median_twice(std::move(intervals));
  return median ? gap_of(*median) : std::numeric_limits<std::int64_t>::max();
}

// `gap`: of the recording.
Judging::Gpu Judging::make_gpu(std::int64_t gap) {
  Gpu gpu{Intervals(gap), {}, {}, {}};
  const Duration judged = options_.every && !options_.gap ? longest_gap(*options_.every) : Duration(gap);
  gpu.trials.reserve(fresh_.size());
  for (const PolicyEvaluator& evaluator : fresh_) gpu.trials.push_back({evaluator.for_gap(judged)});
  if (options_.every)
    gpu.resampler = std::make_unique<Resampler>(Resampler::Options{
        options_.start, *options_.every, Duration(gap), options_.metrics, std::max<std::size_t>(1, options_.gpus)});
  return gpu;
}

void Judging::note_time(std::span<const Instant> at) {
  if (!first_ || at.front() < *first_) first_ = at.front();
  last_ = std::max(last_, at.back());
}

void Judging::block(std::size_t gpu, const Block& block) {
  if (gpu >= gpus_.size()) gpus_.resize(gpu + 1);
  if (!gpus_[gpu]) gpus_[gpu] = std::make_unique<Gpu>(make_gpu(guess_gap(gpu, block)));
  gpus_[gpu]->intervals.feed(block.at);
  take(*gpus_[gpu], gpu, {&block, 1});
}

void Judging::frames(std::span<const Block> gpus) {
  if (gpus_.empty()) gpus_.push_back(std::make_unique<Gpu>(make_gpu(options_.together_gap.count())));
  take(*gpus_[0], kAllGpus, gpus);
}

void Judging::take(Gpu& gpu, std::size_t index, std::span<const Block> scope) {
  note_time(scope[0].at);
  if (gpu.resampler)
    gpu.resampler->feed(scope, [&](std::span<const Block> taken) { judge(gpu, index, taken); });
  else
    judge(gpu, index, scope);
}

// The samples at which something may be judged.
std::span<const Block> Judging::behind_delay(std::span<const Block> scope) {
  const std::span<const Instant> at = scope[0].at;
  const Instant begin = options_.start + options_.delay;
  if (options_.delay == Duration::zero() || at.front() >= begin) return scope;
  const auto from = static_cast<std::size_t>(std::lower_bound(at.begin(), at.end(), begin) - at.begin());
  rest_.assign(scope.begin(), scope.end());
  for (Block& block : rest_) {
    block.at = block.at.subspan(from);
    for (std::span<const float>& column : block.value)
      if (!column.empty()) column = column.subspan(from);
  }
  return rest_;
}

// As live: the first sample is of a moment before which nothing was seen, so it does not fire alone.
void Judging::put_off_first(Gpu& gpu, Trial& trial, std::size_t samples) {
  std::size_t second = 0;
  if (!gpu.begun) {
    trial.put_off = is_set(answers_.fires, 0);
    set(answers_.fires, 0, false);
    second = 1;
  }
  if (!trial.put_off || second >= samples) return;
  if (is_set(answers_.rule.yes, second)) set(answers_.fires, second, true);
  trial.put_off = false;
}

void Judging::judge(Gpu& gpu, std::size_t index, std::span<const Block> all) {
  const std::span<const Block> scope = behind_delay(all);
  const std::span<const Instant> at = scope[0].at;
  if (at.empty()) return;
  for (std::size_t i = 0; i < gpu.trials.size(); ++i) {
    Trial& trial = gpu.trials[i];
    // The reader hands out blocks that fit, in order: there is nothing to be refused.
    if (!trial.evaluator.feed(scope, answers_)) continue;
    put_off_first(gpu, trial, at.size());
    const std::size_t policy = first_policy_ + i;
    if (policy == 0) condition_ = answers_.condition;
    ended_.clear();
    trial.stretches.feed(at, answers_, ended_);
    if (!ended_.empty()) count(policy == 0 ? gpu.totals : totals_[policy], policy, index);
  }
  gpu.begun = true;
  if (options_.picture_columns > 0 && first_policy_ == 0) picture(index, scope);
}

void Judging::picture(std::size_t index, std::span<const Block> scope) {
  const std::size_t first = index == kAllGpus ? 0 : index;
  while (strips_.size() < first + scope.size()) strips_.emplace_back(columns_each_, options_.pictured.size());
  // So many GPUs that each gets less room than wished for.
  for (; columns_each_ > kLeastColumns && strips_.size() * columns_each_ > kAllColumns; columns_each_ /= 2)
    for (Strip& strip : strips_) strip.limit(columns_each_ / 2);
  for (std::size_t i = 0; i < scope.size(); ++i) strips_[first + i].feed(scope[i], options_.pictured, condition_);
}

void Judging::count(Totals& totals, std::size_t policy, std::size_t gpu) {
  for (const Stretch& stretch : ended_) {
    ++totals.stretches;
    totals.idle_seconds += seconds(stretch.length());
    if (!stretch.fired) continue;
    const bool back = stretch.ending == StretchEnd::came_back;
    const bool regretted = back && stretch.reclaimed() <= options_.regret;
    ++totals.firings;
    totals.came_back += back ? 1 : 0;
    totals.regretted += regretted ? 1 : 0;
    totals.reclaimed_seconds += seconds(stretch.reclaimed());
    if (policy == 0 && firings_.size() < options_.most_firings)
      firings_.push_back(
          {gpu, *stretch.fired, *stretch.fired - stretch.begin, stretch.reclaimed(), stretch.ending, regretted});
  }
}

void Judging::conclude() {
  const bool together = options_.gpus > 0;
  if (first_policy_ == 0 && outcomes_.size() < gpus_.size()) outcomes_.resize(gpus_.size());
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (!gpus_[i]) continue;
    Gpu& gpu = *gpus_[i];
    for (std::size_t t = 0; t < gpu.trials.size(); ++t) {
      const std::size_t policy = first_policy_ + t;
      ended_.clear();
      gpu.trials[t].stretches.finish(ended_);
      count(policy == 0 ? gpu.totals : totals_[policy], policy, together ? kAllGpus : i);
    }
    if (first_policy_ == 0) {
      totals_[0] += gpu.totals;
      outcomes_[i] = {gpu.intervals.seen(), Duration(gpu.intervals.gap()), gpu.totals};
    }
    if (const auto median = gpu.intervals.median().median();
        median && !options_.gap && known_gaps_.empty() && !together)
      right_gaps_ = right_gaps_ && gpu.intervals.same_gaps(gap_of(median->low_twice), gap_of(median->high_twice));
    gpus_[i].reset();
  }
  wanted_ = 0;
}

bool Judging::guessed_gaps() {
  conclude();
  return right_gaps_;
}

bool Judging::guessed_start() {
  const bool needed = options_.every || options_.delay > Duration::zero();
  if (!needed || !first_ || *first_ == options_.start) return true;
  options_.start = *first_;
  return false;
}

ReplayResult Judging::finish(trace::TraceReport report) {
  ReplayResult result;
  const bool together = options_.gpus > 0;
  // Together, an hour of the group is an hour of each of its GPUs.
  const double weight = together ? static_cast<double>(options_.gpus) : 1;
  result.sweep.resize(options_.policies.size() - 1);
  for (std::size_t policy = 0; policy < options_.policies.size(); ++policy) {
    Totals& totals = policy == 0 ? result.totals : result.sweep[policy - 1].totals;
    totals = totals_[policy];
    totals.idle_seconds *= weight;
    totals.reclaimed_seconds *= weight;
  }
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    GpuResult gpu;
    gpu.label = report.gpus[i].label;
    gpu.uuid = report.gpus[i].uuid;
    gpu.samples = report.gpus[i].samples;
    gpu.seen = report.gpus[i].seen;
    if (!together && i < outcomes_.size()) {
      gpu.seen = outcomes_[i].seen;
      gpu.gap = outcomes_[i].gap;
      gpu.totals = outcomes_[i].totals;
    }
    result.seen_seconds += seconds(gpu.seen);
    result.gpus.push_back(std::move(gpu));
  }
  std::sort(firings_.begin(), firings_.end(),
            [](const Firing& a, const Firing& b) { return std::tie(a.at, a.gpu) < std::tie(b.at, b.gpu); });
  result.firings = std::move(firings_);
  result.samples = report.samples;
  result.first = first_.value_or(Instant{});
  result.last = last_;
  result.picture.metrics = options_.pictured;
  result.picture.gpus = std::move(strips_);
  result.picture.make_even();
  result.trace = std::move(report);
  return result;
}

}  // namespace lull::replay
