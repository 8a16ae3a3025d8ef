#include "replay/judging.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

namespace lull::replay {
namespace {

constexpr std::size_t kOverhead = 32;          // of an allocation, about
constexpr std::size_t kLeastColumns = 64;      // of a GPU in the picture
constexpr std::size_t kAllColumns = 1U << 21;  // of all GPUs in the picture

std::string job_label(const trace::RecordedJob& holder, std::size_t number) {
  std::string name = holder.job;
  if (name.empty() && !holder.pids.empty()) name = holder.pids[0];
  if (name.empty()) name = std::to_string(number + 1);
  if (const std::string user = holder.user_text(); !user.empty()) name = user + "/" + name;
  return name;
}

}  // namespace

Judging::Judging(JudgingOptions options) : options_(std::move(options)) {
  totals_.resize(options_.policies.size());
  losses_.resize(options_.policies.size());
  ends_.resize(options_.policies.size());
  const bool utilisation = std::ranges::count(options_.metrics, Metric::util) > 0;
  shortest_ = Duration::max();
  for (const Policy& policy : options_.policies) {
    worked_by_.push_back(worked_by(policy.idle, utilisation));
    const std::optional<Span> span = policy.idle.span();
    shortest_ = std::min(shortest_, span ? span->time : Duration::zero());
  }
  columns_each_ = options_.picture_columns;
}

std::size_t Judging::take_policies(std::size_t from) {
  std::size_t gpus = std::max<std::size_t>(1, options_.gpus);  // in the largest scope
  std::size_t subjects = 1;                                    // at a time
  if (options_.per == Per::host) {
    gpus = 1;
    for (const auto& host : options_.hosts) gpus = std::max(gpus, host.size());
    subjects = options_.hosts.size();
  }
  if (options_.per == Per::job) std::swap(gpus, subjects);
  first_policy_ = from;
  fresh_.clear();
  taken_ = 0;
  bytes_each_ = sizeof(Gpu) + sizeof(Outcome) + 64 * kOverhead;  // with the intervals that differ
  if (options_.every)
    bytes_each_ += Resampler({.metrics = options_.metrics, .who = options_.who, .gpus = gpus}).bytes();
  EvaluatorOptions evaluating;
  evaluating.gpus = gpus;
  evaluating.missing = options_.missing;
  for (std::size_t i = from; i < options_.policies.size(); ++i) {
    const Decider decider(options_.policies[i], evaluating);
    // Twice where job spans are told apart: as ever, and for the span under way.
    const std::size_t bytes =
        decider.bytes() * (shows_job_spans() ? 2 : 1) + sizeof(Trial) - sizeof(Decider) + kOverhead;
    if (taken_ > 0 && subjects * (bytes_each_ + bytes) > options_.memory) break;
    bytes_each_ += bytes;
    ++taken_;
  }
  return from + taken_;
}

const std::vector<Decider>& Judging::fresh_for(std::size_t gpus) {
  std::vector<Decider>& fresh = fresh_[gpus];
  EvaluatorOptions evaluating;
  evaluating.gpus = gpus;
  evaluating.missing = options_.missing;
  for (std::size_t i = fresh.size(); i < taken_; ++i)
    fresh.emplace_back(options_.policies[first_policy_ + i], evaluating);
  return fresh;
}

void Judging::restart() {
  gpus_.clear();
  jobs_.reset();
  whole_.reset();
  wanted_ = 0;
  std::fill(totals_.begin() + static_cast<std::ptrdiff_t>(first_policy_),
            totals_.begin() + static_cast<std::ptrdiff_t>(first_policy_ + taken_), Totals{});
  for (std::size_t i = first_policy_; i < first_policy_ + taken_; ++i) {
    losses_[i].clear();
    if (i != 0) other_ends_ -= ends_[i].size();
    ends_[i].clear();
  }
  right_gaps_ = true;
  levels_.restart();
  first_.reset();
  last_ = {};
  if (first_policy_ != 0) return;
  intervals_.clear();
  sampled_ = options_.sampled;
  outcomes_.clear();
  strips_.clear();
  firings_.clear();
  subjects_.clear();
  whole_work_ = 0;
  left_out_ = 0;
  columns_each_ = options_.picture_columns;
}

bool Judging::wants(std::size_t) {
  if (wanted_ > 0 && (wanted_ + 1) * bytes_each_ > options_.memory) return false;
  ++wanted_;
  return true;
}

std::int64_t Judging::guess_gap(std::size_t index, const Block& first) const {
  if (options_.gap) return options_.gap->count();
  if (index < known_gaps_.size()) return known_gaps_[index].first;
  return replay::guess_gap(first.at);
}

// `gap`: of the recording.
Judging::Gpu Judging::make_gpu(std::int64_t gap, std::vector<std::size_t> members) {
  const std::size_t scope = members.size();
  const Duration judged = options_.every && !options_.gap ? longest_gap(*options_.every) : Duration(gap);
  std::vector<float> limits;
  for (const std::size_t member : members) limits.push_back(levels_.limit(member));
  Gpu gpu{Intervals(gap), SpanFinder(std::move(limits)), Accounts(judged.count()), {}, {}, {}, std::move(members),
          judged};
  gpu.trials.reserve(taken_);
  for (const Decider& decider : fresh_for(scope)) gpu.trials.push_back({decider.for_gap(judged)});
  if (options_.every)
    gpu.resampler = std::make_unique<Resampler>(
        Resampler::Options{options_.start, *options_.every, Duration(gap), options_.metrics, options_.who, scope});
  return gpu;
}

void Judging::note_time(std::span<const Instant> at) {
  if (!first_ || at.front() < *first_) first_ = at.front();
  last_ = std::max(last_, at.back());
}

void Judging::block(std::size_t gpu, const Block& block) {
  if (gpu >= gpus_.size()) gpus_.resize(gpu + 1);
  if (!gpus_[gpu]) {
    gpus_[gpu] = std::make_unique<Gpu>(make_gpu(guess_gap(gpu, block), {gpu}));
    if (!options_.gap && gpu < known_gaps_.size()) gpus_[gpu]->gaps = &known_gaps_[gpu];
  }
  take(*gpus_[gpu], gpu, {&block, 1});
}

// In parts that have one sampling interval each.
void Judging::take(Gpu& gpu, std::size_t index, std::span<const Block> scope) {
  if (gpu.gaps == nullptr || gpu.gaps->changes.empty()) return take_part(gpu, index, scope);
  const std::span<const Instant> at = scope[0].at;
  for (std::size_t from = 0; from < at.size();) {
    const std::size_t count = gpu.gaps->same_for(at, from);
    use_gap(gpu, gpu.gaps->before(at[from]));
    paced_.clear();
    for (const Block& block : scope) paced_.push_back(block.part(from, count));
    take_part(gpu, index, paced_);
    from += count;
  }
}

// From here on this is a gap of the recording. What goes on goes on: the samples around the change are none.
void Judging::use_gap(Gpu& gpu, std::int64_t gap) const {
  if (gpu.intervals.gap() == gap) return;
  gpu.intervals.set_gap(gap);
  if (gpu.resampler) gpu.resampler->set_gap(Duration(gap));
  if (options_.every) return;  // judged by an interval of its own
  gpu.judged_gap = Duration(gap);
  gpu.accounts.set_longest(gap);
  for (Trial& trial : gpu.trials) {
    trial.decider.set_gap(Duration(gap));
    if (trial.of_life) trial.of_life->set_gap(Duration(gap));
  }
}

void Judging::take_part(Gpu& gpu, std::size_t index, std::span<const Block> scope) {
  note_time(scope[0].at);
  if (options_.per == Per::gpu) gpu.intervals.feed(scope[0].at);
  for (std::size_t i = 0; i < scope.size() && options_.per != Per::job; ++i) levels_.see(gpu.members[i], scope[i]);
  if (gpu.resampler)
    gpu.resampler->feed(scope, [&](std::span<const Block> taken) { judge(gpu, index, taken); });
  else
    judge(gpu, index, scope);
}

// The samples at which something may be judged.
std::span<const Block> Judging::behind_delay(std::span<const Block> scope) {
  const std::span<const Instant> at = scope[0].at;
  const Instant begin = judged_from(options_.start, options_.delay);
  if (options_.delay == Duration::zero() || at.front() >= begin) return scope;
  const auto from = static_cast<std::size_t>(std::lower_bound(at.begin(), at.end(), begin) - at.begin());
  rest_.clear();
  for (const Block& block : scope) rest_.push_back(block.part(from, at.size() - from));
  return rest_;
}

void Judging::judge(Gpu& gpu, std::size_t index, std::span<const Block> all) {
  find_job_spans(gpu, all);
  const std::span<const Block> scope = behind_delay(all);
  const std::span<const Instant> at = scope[0].at;
  const std::size_t skipped = all[0].size() - at.size();
  for (std::size_t i = 0; i < gpu.trials.size(); ++i) {
    Trial& trial = gpu.trials[i];
    // The reader hands out blocks that fit, in order: there is nothing to be refused.
    if (!at.empty() && !trial.decider.feed(scope, answers_)) continue;
    const std::size_t policy = first_policy_ + i;
    if (policy == 0) condition_ = answers_.condition;
    ended_.clear();
    trial.stretches.feed(at, answers_, ended_);
    if (!ended_.empty()) count(policy == 0 ? gpu.totals : totals_[policy], policy, index, gpu.members.size());
    follow(gpu, index, i, all, skipped);
  }
  gpu.living = pieces_.back().held;
  gpu.met = true;
  gpu.accounts.pass(all);
  if (at.empty()) return;
  if (options_.picture_columns > 0 && first_policy_ == 0) picture(gpu, scope);
}

void Judging::picture(const Gpu& gpu, std::span<const Block> scope) {
  while (strips_.size() <= *std::max_element(gpu.members.begin(), gpu.members.end()))
    strips_.emplace_back(columns_each_, options_.pictured.size());
  // So many GPUs that each gets less room than wished for.
  for (; columns_each_ > kLeastColumns && strips_.size() * columns_each_ > kAllColumns; columns_each_ /= 2)
    for (Strip& strip : strips_) strip.limit(columns_each_ / 2);
  for (std::size_t i = 0; i < scope.size(); ++i) strips_[gpu.members[i]].feed(scope[i], options_.pictured, condition_);
}

// Together, an hour of the group is an hour of each of its GPUs.
void Judging::count(Totals& totals, std::size_t policy, std::size_t gpu, std::size_t scope) {
  const auto weight = static_cast<double>(scope);
  for (const Stretch& stretch : ended_) {
    ++totals.stretches;
    totals.idle_seconds += weight * to_seconds(stretch.length());
    if (!stretch.fired) continue;
    const bool back = stretch.ending == StretchEnd::came_back;
    const bool regretted = back && stretch.reclaimed() <= options_.regret;
    ++totals.firings;
    totals.came_back += back ? 1 : 0;
    totals.regretted += regretted ? 1 : 0;
    totals.reclaimed_seconds += weight * to_seconds(stretch.reclaimed());
    if (policy == 0 && firings_.size() < options_.most_firings)
      firings_.push_back(
          {gpu, *stretch.fired, *stretch.fired - stretch.begin, stretch.reclaimed(), stretch.ending, regretted});
  }
}

// Its samples are over.
void Judging::finish_trials(Gpu& gpu, std::size_t index, StretchEnd ending, Leaving how) {
  for (std::size_t t = 0; t < gpu.trials.size(); ++t) {
    const std::size_t policy = first_policy_ + t;
    ended_.clear();
    gpu.trials[t].stretches.finish(ended_);
    for (Stretch& stretch : ended_) stretch.ending = ending;
    Totals& totals = policy == 0 ? gpu.totals : totals_[policy];
    count(totals, policy, index, gpu.members.size());
    if (gpu.living) end_life(totals, gpu.trials[t], policy, index, how);
  }
}

void Judging::conclude() {
  const bool together = options_.gpus > 0;
  if (first_policy_ == 0 && outcomes_.size() < gpus_.size()) outcomes_.resize(gpus_.size());
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    if (!gpus_[i]) continue;
    Gpu& gpu = *gpus_[i];
    finish_trials(gpu, index_of_subject(i), StretchEnd::end, Leaving::cut_off);
    if (first_policy_ == 0) {
      if (!together)
        sampled_.add(gpu.intervals.sampled(), gpu.gaps != nullptr ? gpu.gaps->longest() : gpu.intervals.gap());
      totals_[0] += gpu.totals;
      outcomes_[i] = {gpu.intervals.seen(), gpu.intervals.missed(), Duration(gpu.intervals.gap()), gpu.totals};
    }
    if (const auto median = gpu.intervals.median().median();
        median && !options_.gap && known_gaps_.empty() && !together)
      right_gaps_ = right_gaps_ && gpu.intervals.same_gaps(*median);
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
  holders_.append_to(report.holders);
  for (std::vector<End>& ends : ends_)
    for (End& end : ends) end.holder = holders_.number_in(end.holder);
  const bool together = options_.gpus > 0;
  result.sweep.resize(options_.policies.size() - 1);
  result.except_users = options_.except_users;
  result.left_out = left_out_;
  const double counted = totals_[0].work_seconds + whole_work_;
  const double work = counted < 1e-6 ? 0 : counted;  // what was left out leaves a rounding
  const auto intervals = intervals_.of(losses_, work);
  for (std::size_t policy = 0; policy < options_.policies.size(); ++policy) {
    Totals& totals = policy == 0 ? result.totals : result.sweep[policy - 1].totals;
    totals = std::move(totals_[policy]);
    totals.work_seconds = work;
    totals.set_interval(intervals[policy]);
  }
  for (std::size_t i = 0; i < report.gpus.size(); ++i) {
    GpuResult gpu;
    gpu.label = report.gpus[i].label;
    gpu.uuid = report.gpus[i].uuid;
    gpu.samples = report.gpus[i].samples;
    gpu.seen = report.gpus[i].seen;
    gpu.missed = report.gpus[i].missed;
    if (!together && i < outcomes_.size()) {
      gpu.seen = outcomes_[i].seen;
      gpu.missed = outcomes_[i].missed;
      gpu.gap = outcomes_[i].gap;
      gpu.totals = outcomes_[i].totals;
    }
    gpu.empty_bytes = levels_.limit(i);
    result.seen_seconds += to_seconds(gpu.seen);
    result.gap_seconds += to_seconds(gpu.missed);
    result.gpus.push_back(std::move(gpu));
  }
  std::sort(firings_.begin(), firings_.end(),
            [](const Firing& a, const Firing& b) { return std::tie(a.at, a.gpu) < std::tie(b.at, b.gpu); });
  result.firings = std::move(firings_);
  for (std::size_t policy = 0; policy < ends_.size(); ++policy) {
    std::sort(ends_[policy].begin(), ends_[policy].end(),
              [](const End& a, const End& b) { return std::tie(a.at, a.gpu) < std::tie(b.at, b.gpu); });
    (policy == 0 ? result.ends : result.sweep[policy - 1].ends) = std::move(ends_[policy]);
  }
  result.subjects = std::move(subjects_);
  result.samples = report.samples;
  result.intervals = intervals_of(std::move(sampled_));
  result.first = first_.value_or(Instant{});
  result.last = last_;
  result.picture.metrics = options_.pictured;
  result.picture.gpus = std::move(strips_);
  result.picture.make_even();
  result.trace = std::move(report);
  return result;
}

// ---- several GPUs as one

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

// ---- job spans

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
