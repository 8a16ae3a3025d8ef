#include "replay/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <tuple>

#include "replay/intervals.h"
#include "replay/job_spans.h"
#include "replay/survey.h"
#include "rule/policy.h"

namespace lull::replay {
namespace {

// One rule on one GPU.
class Stretches {
 public:
  explicit Stretches(PolicyEvaluator evaluator) : evaluator_(std::move(evaluator)) {}
  void set_gap(Duration gap) { evaluator_ = evaluator_.for_gap(gap); }
  bool judge(std::span<const Block> scope) { return evaluator_.feed(scope, answers_).has_value(); }
  Truth condition(std::size_t i) const { return answers_.condition[i]; }
  bool holds(std::size_t i) const { return answers_.rule[i] == Truth::yes; }

 private:
  PolicyEvaluator evaluator_;
  PolicyAnswers answers_{};
};

class Adding final : public trace::TraceSink {
 public:
  explicit Adding(const ReportOptions& options) : options_(options), longest_(options.most_stretches) {
    for (const Metric metric : options.hung.signals())
      if (!is_learned(metric)) hung_signals_.emplace_back(metric, 0.0);
  }

  void restart() override {
    gpus_.clear();
    levels_.restart();
    by_holder_.clear();
    longest_.clear();
    for (auto& [metric, missed] : hung_signals_) missed = 0;
    looks_hung_ = 0;
    gap_seconds_ = 0;
    first_.reset();
    last_ = {};
  }
  void meet(const trace::Holders& holders) override { holders_.meet(holders); }
  void frames(std::span<const Block>) override {}
  void block(std::size_t gpu, const Block& block) override;
  void next_part() override { settle_all(); }
  // After a reading: the gaps that were guessed are those that the true medians give. Else: know_gaps, and read again.
  bool guessed_gaps();
  void know_gaps(std::vector<trace::Paced> gaps) { gaps_ = std::move(gaps); }
  bool guessed_levels() { return levels_.settle(); }
  ReportResult finish(trace::TraceReport report);

 private:
  enum class State : std::uint8_t { none, idle, hung };
  struct Key {
    float holder;
    std::size_t gpu;  // whose host counts, if no other is recorded
    bool nobody;
    bool operator<(const Key& other) const {
      return std::tie(holder, gpu, nobody) < std::tie(other.holder, other.gpu, other.nobody);
    }
  };
  struct Gpu {
    SpanFinder spans;
    Stretches idle;
    Stretches hung;
    Intervals intervals;
    std::size_t place = 0;  // among the GPUs of the trace
    std::optional<Instant> last = {};
    State now = State::none;  // of the stretch under way
    bool counts = false;      // it has lasted as long as its rule asks
    Instant since{};          // its first sample
    double waiting = 0;       // seconds of it
    Instant until{};          // its last sample
    Key whose{-1, 0, false};
    HoursOfGpu hours = {};
  };

  Gpu make(std::size_t gpu, const Block& first) const;
  static void use_gap(Gpu& gpu, std::int64_t gap);
  void add(Gpu& gpu, std::size_t index, const Block& block);
  void sample(Gpu& gpu, const Key& whose, bool begins, std::size_t i, Instant at, double seconds);
  void miss_signals(const Block& block, std::size_t i, double seconds);
  void settle(Gpu& gpu);
  void keep_stretch(Gpu& gpu);
  UseByHour by_hour(const trace::TraceReport& report);
  std::vector<IdleStretch> longest();
  static void add_stretch(const Gpu& gpu, Use& use);
  void settle_all() {
    for (auto& gpu : gpus_) {
      if (!gpu) continue;
      settle(*gpu);
      gpu->hours.finish();
    }
  }
  static std::optional<float> holder_of(const Key& whose) {
    return whose.holder > trace::kNobody ? std::optional(whose.holder) : std::nullopt;
  }

  const ReportOptions& options_;
  std::vector<trace::Paced> gaps_;
  std::vector<std::pair<Metric, double>> hung_signals_;  // with the seconds not judged for want of it
  double looks_hung_ = 0;                                // seconds of cards whose idle looks so
  trace::KnownHolders holders_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  EmptyLevels levels_;
  std::map<Key, Use> by_holder_;
  std::vector<Piece> pieces_;
  LongestStretches longest_;
  double gap_seconds_ = 0;
  std::optional<Instant> first_;
  Instant last_{};
};

Adding::Gpu Adding::make(std::size_t gpu, const Block& first) const {
  const Duration gap = options_.gap         ? *options_.gap
                       : gpu < gaps_.size() ? Duration(gaps_[gpu].first)
                                            : Duration(guess_gap(first.at));
  const auto judge = [&](const Rule& rule) {
    EvaluatorOptions how;
    how.max_gap = gap;
    return Stretches(PolicyEvaluator::compile({.idle = rule}, how));
  };
  return {.spans = SpanFinder({levels_.limit(gpu)}),
          .idle = judge(options_.idle),
          .hung = judge(options_.hung),
          .intervals = Intervals(gap.count()),
          .place = gpu};
}

// What waited for its stretch to be long enough is settled: it was, or it was only a pause of something busy.
void Adding::settle(Gpu& gpu) {
  if (gpu.waiting > 0) {
    add_stretch(gpu, by_holder_[gpu.whose]);
    keep_stretch(gpu);
  }
  gpu.waiting = 0;
  gpu.counts = false;
  gpu.now = State::none;
}

// From the sample before its first one on: a gap would have ended it.
void Adding::keep_stretch(Gpu& gpu) {
  const Instant from = gpu.until - std::chrono::round<Duration>(std::chrono::duration<double>(gpu.waiting));
  const bool idle = gpu.counts && gpu.now == State::idle;
  if (options_.by_hour)
    gpu.hours.add(from, gpu.until,
                  idle                                   ? &HourOfUse::idle
                  : gpu.counts && gpu.now == State::hung ? &HourOfUse::hung
                                                         : &HourOfUse::busy,
                  holder_of(gpu.whose));
  if (idle) longest_.add({gpu.place, gpu.whose.holder, from, gpu.until, false});
}

void Adding::add_stretch(const Gpu& gpu, Use& use) {
  const bool idle = gpu.counts && gpu.now == State::idle;
  (idle ? use.idle : gpu.counts && gpu.now == State::hung ? use.hung : use.busy) += gpu.waiting;
  for (std::size_t i = 0; idle && i < kStretches.size(); ++i) {
    if (gpu.waiting <= kStretches[i].seconds) break;
    use.idle_over[i] += gpu.waiting;
    use.idle_after[i] += gpu.waiting - kStretches[i].seconds;
  }
}

// `begins`: another job than at the sample before. One of which a process came or went is the same.
void Adding::sample(Gpu& gpu, const Key& whose, bool begins, std::size_t i, Instant at, double seconds) {
  const bool hung = gpu.hung.condition(i) == Truth::yes;
  const bool idle = gpu.idle.condition(i) == Truth::yes;
  const State state = hung ? State::hung : idle ? State::idle : State::none;
  if (begins || whose.nobody != gpu.whose.nobody || state != gpu.now) settle(gpu);
  gpu.whose = whose;
  if (whose.nobody || state == State::none) {
    Use& use = by_holder_[whose];
    const bool unknown = gpu.idle.condition(i) == Truth::unknown;
    (whose.nobody                              ? use.free
     : unknown                                 ? use.unknown
     : gpu.hung.condition(i) == Truth::unknown ? use.not_judged
                                               : use.busy) += seconds;
    if (options_.by_hour)
      gpu.hours.add(at - std::chrono::round<Duration>(std::chrono::duration<double>(seconds)), at,
                    whose.nobody ? &HourOfUse::free
                    : unknown    ? &HourOfUse::unknown
                                 : &HourOfUse::busy,
                    holder_of(whose));
    return;
  }
  if (gpu.now == State::none) gpu.since = at;
  gpu.now = state;
  gpu.waiting += seconds;
  gpu.until = at;
  // The rule's own streak may have begun with another job: what counts is that it was long enough with this one.
  const std::optional<Span> span = (hung ? options_.hung : options_.idle).span();
  const bool holds = hung ? gpu.hung.holds(i) : gpu.idle.holds(i);
  gpu.counts = gpu.counts || (holds && at - gpu.since >= (span ? span->time : Duration::zero()));
}

void Adding::block(std::size_t index, const Block& block) {
  if (index >= gpus_.size()) gpus_.resize(index + 1);
  if (!gpus_[index]) gpus_[index] = std::make_unique<Gpu>(make(index, block));
  levels_.see(index, block);
  for (std::size_t from = 0; from < block.size();) {
    const bool changes = !options_.gap && index < gaps_.size() && !gaps_[index].changes.empty();
    const std::size_t count = changes ? gaps_[index].same_for(block.at, from) : block.size();
    if (changes) use_gap(*gpus_[index], gaps_[index].before(block.at[from]));
    const Block part = block.part(from, count);
    gpus_[index]->intervals.feed(part.at);
    add(*gpus_[index], index, part);
    from += count;
  }
}

void Adding::use_gap(Gpu& gpu, std::int64_t gap) {
  if (gpu.intervals.gap() == gap) return;
  gpu.intervals.set_gap(gap);
  gpu.idle.set_gap(Duration(gap));
  gpu.hung.set_gap(Duration(gap));
}

void Adding::add(Gpu& gpu, std::size_t index, const Block& block) {
  const std::span<const Block> scope(&block, 1);
  if (!gpu.idle.judge(scope) || !gpu.hung.judge(scope)) return;
  if (!first_ || block.at.front() < *first_) first_ = block.at.front();
  last_ = std::max(last_, block.at.back());
  gpu.spans.feed(scope, holders_, pieces_);
  for (const Piece& piece : pieces_) {
    const bool told = piece.held && piece.holder > trace::kNobody;
    // A user's time is added up over all hosts; free and unknown time goes by its GPU's host.
    const Key whose{told ? piece.holder : -1, told ? 0 : index, !piece.held};
    for (std::size_t i = piece.from; i < piece.to; ++i) {
      const Instant at = block.at[i];
      std::int64_t since = gpu.last ? (at - *gpu.last).count() : 0;
      gpu.last = at;
      if (since > gpu.intervals.gap()) {
        gap_seconds_ += static_cast<double>(since) / 1e9;
        settle(gpu);
        since = 0;  // a stretch may begin with this sample
      }
      const double seconds = static_cast<double>(since) / 1e9;
      sample(gpu, whose, piece.begins && i == piece.from, i, at, seconds);
      if (piece.held && gpu.hung.condition(i) == Truth::unknown && gpu.idle.condition(i) == Truth::no)
        miss_signals(block, i, seconds);
      if (const auto power = block[Metric::power]; !power.empty() && power[i] >= 0) {
        Use& use = by_holder_[whose];
        use.joules += static_cast<double>(power[i]) * seconds;
        use.powered += seconds;
      }
    }
  }
}

void Adding::miss_signals(const Block& block, std::size_t i, double seconds) {
  const auto is_missing = [&](Metric metric) { return block[metric].empty() || std::isnan(block[metric][i]); };
  bool all = true;
  for (auto& [metric, missed] : hung_signals_)
    if (is_missing(metric)) {
      missed += seconds;
      all = false;
    }
  if (all && !block[Metric::learned].empty() && is_missing(Metric::learned)) looks_hung_ += seconds;
}

// "power limit"
std::string signal_text(Metric metric) {
  std::string text(info(metric).name);
  std::ranges::replace(text, '_', ' ');
  return text;
}

double wasted(const Use& use) { return use.idle + use.hung; }

void most_wasted_first(std::vector<UseOf>& uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const UseOf& a, const UseOf& b) {
    if (a.nobody != b.nobody) return b.nobody;  // free time comes last
    return std::pair(wasted(a.use), a.use.seconds()) > std::pair(wasted(b.use), b.use.seconds());
  });
}

bool Adding::guessed_gaps() {
  if (options_.gap || !gaps_.empty()) return true;
  return std::ranges::all_of(gpus_, [](const auto& gpu) {
    const auto median = gpu ? gpu->intervals.median().median() : std::nullopt;
    return !median || gpu->intervals.same_gaps(*median);
  });
}

std::vector<IdleStretch> Adding::longest() {
  std::vector<IdleStretch> all = longest_.take();
  for (IdleStretch& one : all) {
    one.open = one.to == gpus_[one.gpu]->last;
    if (one.holder > trace::kNobody) one.holder = holders_.number_in(one.holder);
  }
  return all;
}

// All GPUs from the same hour on, with the name of who had each longest.
UseByHour Adding::by_hour(const trace::TraceReport& report) {
  UseByHour result;
  std::int64_t end = 0;
  bool any = false;
  for (const auto& gpu : gpus_) {
    if (!gpu || gpu->hours.hours().empty()) continue;
    const std::int64_t first = gpu->hours.first();
    const std::int64_t behind = first + static_cast<std::int64_t>(gpu->hours.hours().size());
    result.first = any ? std::min(result.first, first) : first;
    end = any ? std::max(end, behind) : behind;
    any = true;
  }
  result.count = std::min(static_cast<std::size_t>(end - result.first), HoursOfGpu::kMost);
  std::map<std::string, int> people;
  for (const auto& gpu : gpus_) {
    std::vector<HourOfUse>& hours = result.gpus.emplace_back(result.count);
    if (!gpu || gpu->hours.hours().empty()) continue;
    const auto shift = static_cast<std::size_t>(gpu->hours.first() - result.first);
    for (std::size_t i = 0; i < gpu->hours.hours().size() && shift + i < result.count; ++i)
      hours[shift + i] = gpu->hours.hours()[i];
    std::map<std::pair<std::size_t, int>, float> times;  // of a person, who may have several jobs
    for (const auto& [key, seconds] : gpu->hours.holders()) {
      const trace::RecordedJob& holder = report.holders[holders_.number_in(key.second)];
      const std::string name = holder.user_text().empty() ? holder.job : holder.user_text();
      if (name.empty() || shift + key.first >= result.count) continue;
      const auto [found, made] = people.try_emplace(name, static_cast<int>(result.people.size()));
      if (made) result.people.push_back(name);
      times[{shift + key.first, found->second}] += seconds;
    }
    std::vector<float> most(result.count);
    for (const auto& [key, seconds] : times) {
      if (seconds <= most[key.first]) continue;
      most[key.first] = seconds;
      hours[key.first].person = key.second;
    }
  }
  return result;
}

ReportResult Adding::finish(trace::TraceReport report) {
  settle_all();
  holders_.append_to(report.holders);
  ReportResult result;
  result.longest = longest();
  if (options_.by_hour) result.hours = by_hour(report);
  std::map<std::tuple<bool, std::string, std::string, std::string>, Use> uses;
  for (const auto& [key, use] : by_holder_) {
    std::string user;
    std::string command;
    std::string host = key.gpu < report.gpus.size() ? report.gpus[key.gpu].host : "";
    if (key.holder > trace::kNobody) {
      const trace::RecordedJob& holder = report.holders[holders_.number_in(key.holder)];
      user = holder.user_text();
      command = holder.command;
      host = holder.host;
      if (user.empty() && command.empty()) user = holder.job;
    }
    uses[{key.nobody, user, command, host}] += use;
    result.total += use;
  }
  for (const auto& [key, use] : uses)
    result.uses.push_back({std::get<1>(key), std::get<2>(key), std::get<3>(key), std::get<0>(key), use});
  most_wasted_first(result.uses);
  for (const auto& [metric, missed] : hung_signals_)
    if (missed > 0)
      result.not_judged_since +=
          fmt::format("{}no {}", result.not_judged_since.empty() ? "" : ", ", signal_text(metric));
  if (looks_hung_ > 0)
    result.not_judged_since +=
        fmt::format("{}idle RDNA and Intel cards look hung", result.not_judged_since.empty() ? "" : ", ");
  result.has_power = result.total.powered > 0;
  result.gap_seconds = gap_seconds_;
  result.first = first_.value_or(Instant{});
  result.last = last_;
  SampledTime sampled;
  for (std::size_t i = 0; i < gpus_.size(); ++i)
    if (gpus_[i])
      sampled.add(gpus_[i]->intervals.sampled(),
                  !options_.gap && i < gaps_.size() ? gaps_[i].longest() : gpus_[i]->intervals.gap());
  result.intervals = intervals_of(std::move(sampled));
  result.trace = std::move(report);
  return result;
}

bool has_all(const std::vector<Metric>& there, const Rule& rule) {
  const std::vector<Metric> needed = must_have(rule.signals());
  return std::all_of(needed.begin(), needed.end(),
                     [&](Metric metric) { return std::find(there.begin(), there.end(), metric) != there.end(); });
}

constexpr std::int64_t kHour = 3'600'000'000'000;

std::int64_t hour_of(Instant at) {
  const std::int64_t ns = at.time_since_epoch().count();
  return ns >= 0 ? ns / kHour : -1;
}

}  // namespace

Use& Use::operator+=(const Use& more) {
  busy += more.busy;
  idle += more.idle;
  hung += more.hung;
  not_judged += more.not_judged;
  for (std::size_t i = 0; i < kStretches.size(); ++i) {
    idle_over[i] += more.idle_over[i];
    idle_after[i] += more.idle_after[i];
  }
  free += more.free;
  unknown += more.unknown;
  joules += more.joules;
  powered += more.powered;
  return *this;
}

std::vector<UseOf> add_up(const ReportResult& result, ReportBy by) {
  if (by == ReportBy::all) return result.uses;
  std::map<std::pair<bool, std::string>, UseOf> added;
  for (const UseOf& one : result.uses) {
    UseOf key{};
    key.nobody = by != ReportBy::host && one.nobody;
    (by == ReportBy::user      ? key.user
     : by == ReportBy::command ? key.command
                               : key.host) = by == ReportBy::user      ? one.user
                                             : by == ReportBy::command ? one.command
                                                                       : one.host;
    UseOf& sum = added.try_emplace({key.nobody, key.user + key.command + key.host}, key).first->second;
    sum.use += one.use;
  }
  std::vector<UseOf> uses;
  for (auto& [name, use] : added) uses.push_back(std::move(use));
  most_wasted_first(uses);
  return uses;
}

Result<ReportResult> report(ReportOptions options) {
  std::vector<Metric> wanted = options.idle.signals();
  const auto add = [&](Metric metric) {
    if (std::find(wanted.begin(), wanted.end(), metric) == wanted.end()) wanted.push_back(metric);
  };
  for (const Metric metric : options.hung.signals()) add(metric);
  for (const Metric metric : {Metric::util, Metric::mem_used, Metric::procs, Metric::power}) add(metric);
  auto reader = TRY(open_traces(options, std::move(wanted), options.idle.signals(), options.memory));
  const bool hangs = has_all(reader.available(), options.hung);
  Adding adding(options);
  Learning learning(adding);
  const bool learns = any_learned(options.idle.signals()) || any_learned(options.hung.signals());
  trace::TraceSink& sink = learns ? static_cast<trace::TraceSink&>(learning) : adding;
  trace::TraceReport read = TRY(reader.read(sink));
  const bool gaps_hold = adding.guessed_gaps();
  if (!gaps_hold) {
    std::vector<trace::Paced> gaps;
    for (Sampling& gpu : TRY(survey(reader))) gaps.push_back(gaps_of(std::move(gpu.interval)));
    adding.know_gaps(std::move(gaps));
  }
  if (!adding.guessed_levels() || !gaps_hold) read = TRY(reader.read(sink));
  note_missing_own(options.idle.signals(), reader, read);
  ReportResult result = adding.finish(std::move(read));
  result.name = name_of(options);
  result.idle_rule = options.idle.text;
  result.hung_rule = options.hung.text;
  result.judges_hangs = hangs;
  result.means = reader.holds_means();
  return result;
}

// ---- by hour

void HoursOfGpu::add(Instant from, Instant to, Part part, std::optional<float> holder) {
  if (to <= from || hour_of(from) < 0) return;
  // Samples of one kind are one piece of time.
  if (run_ && run_->to == from && run_->part == part && run_->holder == holder) {
    run_->to = to;
    return;
  }
  flush();
  run_ = Run{from, to, part, holder};
}

void HoursOfGpu::flush() {
  if (!run_) return;
  const Run run = *run_;
  run_.reset();
  if (hours_.empty()) first_ = hour_of(run.from);
  for (Instant at = run.from; at < run.to;) {
    const std::int64_t hour = hour_of(at);
    const Instant end = std::min(run.to, Instant(Duration((hour + 1) * kHour)));
    if (hour < first_ || static_cast<std::size_t>(hour - first_) >= kMost) return;
    const auto place = static_cast<std::size_t>(hour - first_);
    if (place >= hours_.size()) hours_.resize(place + 1);
    const auto seconds = static_cast<float>(to_seconds(end - at));
    hours_[place].*run.part += seconds;
    if (run.holder) holders_[{place, *run.holder}] += seconds;
    at = end;
  }
}

void LongestStretches::add(const IdleStretch& one) {
  if (most_ == 0) return;
  all_.push_back(one);
  if (all_.size() >= 8 * most_) prune(most_);
}

void LongestStretches::prune(std::size_t to) {
  // The same whatever order the GPUs are read in.
  std::ranges::sort(all_, {}, [](const IdleStretch& one) { return std::tuple(-one.length(), one.from, one.gpu); });
  if (all_.size() > to) all_.resize(to);
}

std::vector<IdleStretch> LongestStretches::take() {
  prune(most_);
  return std::exchange(all_, {});
}

}  // namespace lull::replay
