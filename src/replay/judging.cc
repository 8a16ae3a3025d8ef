#include "replay/judging.h"

#include <algorithm>
#include <limits>

namespace lull::replay {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

void add(Totals& to, const Totals& more) {
  to.firings += more.firings;
  to.came_back += more.came_back;
  to.regretted += more.regretted;
  to.stretches += more.stretches;
  to.idle_seconds += more.idle_seconds;
  to.reclaimed_seconds += more.reclaimed_seconds;
}

}  // namespace

Judging::Judging(JudgingOptions options) : options_(std::move(options)) {}

void Judging::restart() {
  gpus_.clear();
  strips_.clear();
  firings_.clear();
  first_.reset();
  last_ = {};
}

std::int64_t Judging::guess_gap(std::size_t index, const Block& first) const {
  if (options_.gap) return options_.gap->count();
  if (index < known_gaps_.size()) return known_gaps_[index];
  std::vector<std::int64_t> intervals;
  for (std::size_t i = 1; i < first.size(); ++i) intervals.push_back((first.at[i] - first.at[i - 1]).count());
  const auto median = median_twice(std::move(intervals));
  return median ? gap_of(*median) : std::numeric_limits<std::int64_t>::max();
}

Judging::Gpu Judging::make_gpu(std::size_t index, const Block& first, std::size_t gpus) {
  const std::int64_t gap = options_.gpus > 0 ? options_.together_gap.count() : guess_gap(index, first);
  Gpu gpu{Intervals(gap), {}, 0};
  EvaluatorOptions evaluating;
  evaluating.gpus = gpus;
  evaluating.max_gap = Duration(gap);
  evaluating.missing = options_.missing;
  for (const Policy& policy : options_.policies)
    gpu.trials.push_back({PolicyEvaluator::compile(policy, evaluating), {}, {}});
  return gpu;
}

void Judging::note_time(std::span<const Instant> at) {
  if (!first_ || at.front() < *first_) first_ = at.front();
  last_ = std::max(last_, at.back());
}

void Judging::block(std::size_t gpu, const Block& block) {
  if (gpu >= gpus_.size()) gpus_.resize(gpu + 1);
  if (!gpus_[gpu]) gpus_[gpu] = std::make_unique<Gpu>(make_gpu(gpu, block, 1));
  Gpu& one = *gpus_[gpu];
  one.intervals.feed(block.at);
  one.samples += block.size();
  judge(one, gpu, {&block, 1});
  if (options_.picture_columns == 0) return;
  while (strips_.size() < gpus_.size()) strips_.emplace_back(options_.picture_columns, options_.pictured.size());
  strips_[gpu].feed(block, options_.pictured, condition_);
}

void Judging::frames(std::span<const Block> gpus) {
  if (gpus_.empty()) gpus_.push_back(std::make_unique<Gpu>(make_gpu(0, gpus[0], gpus.size())));
  judge(*gpus_[0], kAllGpus, gpus);
  if (options_.picture_columns == 0) return;
  while (strips_.size() < gpus.size()) strips_.emplace_back(options_.picture_columns, options_.pictured.size());
  for (std::size_t i = 0; i < gpus.size(); ++i) strips_[i].feed(gpus[i], options_.pictured, condition_);
}

void Judging::judge(Gpu& gpu, std::size_t index, std::span<const Block> scope) {
  const std::span<const Instant> at = scope[0].at;
  note_time(at);
  for (std::size_t policy = 0; policy < gpu.trials.size(); ++policy) {
    Trial& trial = gpu.trials[policy];
    // The reader hands out blocks that fit, in order: there is nothing to be refused.
    if (!trial.evaluator.feed(scope, answers_)) continue;
    if (policy == 0) condition_ = answers_.condition;
    ended_.clear();
    trial.stretches.feed(at, answers_, ended_);
    if (!ended_.empty()) count(trial.totals, policy, index);
  }
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

bool Judging::guessed_right() {
  if (options_.gap || !known_gaps_.empty() || options_.gpus > 0) return true;
  return std::all_of(gpus_.begin(), gpus_.end(), [](const std::unique_ptr<Gpu>& gpu) {
    if (!gpu) return true;
    const auto median = gpu->intervals.median().median();
    return !median || gpu->intervals.same_gaps(gap_of(median->low_twice), gap_of(median->high_twice));
  });
}

ReplayResult Judging::finish(trace::TraceReport report) {
  ReplayResult result;
  const bool together = options_.gpus > 0;
  // Together, an hour of the group is an hour of each of its GPUs.
  const double weight = together ? static_cast<double>(options_.gpus) : 1;
  result.sweep.resize(options_.policies.size() - 1);
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (!gpus_[i]) continue;
    for (std::size_t policy = 0; policy < options_.policies.size(); ++policy) {
      Trial& trial = gpus_[i]->trials[policy];
      ended_.clear();
      trial.stretches.finish(ended_);
      count(trial.totals, policy, together ? kAllGpus : i);
      Totals weighed = trial.totals;
      weighed.idle_seconds *= weight;
      weighed.reclaimed_seconds *= weight;
      add(policy == 0 ? result.totals : result.sweep[policy - 1].totals, weighed);
    }
  }
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    GpuResult gpu;
    gpu.label = report.gpus[i].label;
    gpu.uuid = report.gpus[i].uuid;
    gpu.samples = report.gpus[i].samples;
    gpu.seen = report.gpus[i].seen;
    if (!together && i < gpus_.size() && gpus_[i]) {
      gpu.seen = gpus_[i]->intervals.seen();
      gpu.gap = Duration(gpus_[i]->intervals.gap());
      gpu.totals = gpus_[i]->trials[0].totals;
    }
    result.seen_seconds += seconds(gpu.seen);
    result.gpus.push_back(std::move(gpu));
  }
  std::stable_sort(firings_.begin(), firings_.end(), [](const Firing& a, const Firing& b) { return a.at < b.at; });
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
