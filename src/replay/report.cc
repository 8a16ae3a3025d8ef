#include "replay/report.h"

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>

#include "replay/intervals.h"
#include "replay/lives.h"
#include "replay/survey.h"
#include "rule/policy.h"

namespace lull::replay {
namespace {

// One rule on one GPU.
class Stretches {
 public:
  explicit Stretches(PolicyEvaluator evaluator) : evaluator_(std::move(evaluator)) {}
  bool judge(std::span<const Block> scope) { return evaluator_.feed(scope, answers_).has_value(); }
  Truth condition(std::size_t i) const { return answers_.condition[i]; }
  bool holds(std::size_t i) const { return answers_.rule[i] == Truth::yes; }

 private:
  PolicyEvaluator evaluator_;
  PolicyAnswers answers_{};
};

class Adding final : public trace::TraceSink {
 public:
  Adding(const ReportOptions& options, bool hangs, std::vector<std::int64_t> gaps)
      : options_(options), hangs_(hangs), gaps_(std::move(gaps)) {}

  void restart() override {
    gpus_.clear();
    by_holder_.clear();
    gap_seconds_ = 0;
    first_.reset();
    last_ = {};
  }
  void meet(const trace::Holders& holders) override { holders_ = &holders; }
  void frames(std::span<const Block>) override {}
  void block(std::size_t gpu, const Block& block) override;
  void next_part() override { settle_all(); }
  ReportResult finish(trace::TraceReport report);

 private:
  enum class State : std::uint8_t { none, idle, hung };
  struct Key {
    float holder;
    std::size_t gpu;  // of whose host, where nobody says
    bool nobody;
    bool operator<(const Key& other) const {
      return std::tie(holder, gpu, nobody) < std::tie(other.holder, other.gpu, other.nobody);
    }
  };
  struct Gpu {
    LifeFinder lives;
    Stretches idle;
    std::optional<Stretches> hung;
    std::int64_t gap;
    std::optional<Instant> last;
    State now = State::none;  // of the stretch under way
    bool counts = false;      // it has lasted as long as its rule asks
    Instant since{};          // its first sample
    double waiting = 0;       // seconds of it
    Key whose{-1, 0, false};
  };

  Gpu make(std::size_t gpu) const;
  void sample(Gpu& gpu, const Key& whose, State state, bool holds, bool known, Instant at, double seconds);
  void settle(Gpu& gpu);
  void settle_all() {
    for (auto& gpu : gpus_)
      if (gpu) settle(*gpu);
  }

  const ReportOptions& options_;
  bool hangs_;
  std::vector<std::int64_t> gaps_;
  const trace::Holders* holders_ = nullptr;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::map<Key, Use> by_holder_;
  std::vector<Piece> pieces_;
  double gap_seconds_ = 0;
  std::optional<Instant> first_;
  Instant last_{};
};

Adding::Gpu Adding::make(std::size_t gpu) const {
  const Duration gap = gpu < gaps_.size() ? Duration(gaps_[gpu]) : Duration::max();
  const auto judge = [&](const Rule& rule) {
    EvaluatorOptions how;
    how.max_gap = gap;
    return Stretches(PolicyEvaluator::compile({.idle = rule}, how));
  };
  Gpu made{{}, judge(options_.idle), {}, gap.count(), {}, State::none, false, {}, 0, {}};
  if (hangs_) made.hung.emplace(judge(options_.hung));
  return made;
}

// What waited for its stretch to be long enough is settled: it was, or it was only a pause of something busy.
void Adding::settle(Gpu& gpu) {
  if (gpu.waiting > 0) {
    Use& use = by_holder_[gpu.whose];
    (gpu.counts && gpu.now == State::idle   ? use.idle
     : gpu.counts && gpu.now == State::hung ? use.hung
                                            : use.busy) += gpu.waiting;
  }
  gpu.waiting = 0;
  gpu.counts = false;
  gpu.now = State::none;
}

void Adding::sample(Gpu& gpu, const Key& whose, State state, bool holds, bool known, Instant at, double seconds) {
  const bool other = whose < gpu.whose || gpu.whose < whose;
  if (other || state != gpu.now) settle(gpu);
  gpu.whose = whose;
  if (whose.nobody) {
    by_holder_[whose].free += seconds;
    return;
  }
  if (state == State::none) {
    Use& use = by_holder_[whose];
    (known ? use.busy : use.unknown) += seconds;
    return;
  }
  if (gpu.now == State::none) gpu.since = at;
  gpu.now = state;
  gpu.waiting += seconds;
  // The rule's own streak may have begun with somebody else: what counts is that it was long enough with this one.
  const std::optional<Span> span = (state == State::hung ? options_.hung : options_.idle).span();
  gpu.counts = gpu.counts || (holds && at - gpu.since >= (span ? span->time : Duration::zero()));
}

void Adding::block(std::size_t index, const Block& block) {
  if (index >= gpus_.size()) gpus_.resize(index + 1);
  if (!gpus_[index]) gpus_[index] = std::make_unique<Gpu>(make(index));
  Gpu& gpu = *gpus_[index];
  const std::span<const Block> scope(&block, 1);
  if (!gpu.idle.judge(scope) || (gpu.hung && !gpu.hung->judge(scope))) return;
  if (!first_ || block.at.front() < *first_) first_ = block.at.front();
  last_ = std::max(last_, block.at.back());
  gpu.lives.feed(scope, holders_, pieces_);
  for (const Piece& piece : pieces_) {
    const bool told = piece.held && piece.holder > trace::kNobody;
    // A person's time is added up wherever it was; nobody's, and that of which nothing is told, goes by its GPU's host.
    const Key whose{told ? piece.holder : -1, told ? 0 : index, !piece.held};
    for (std::size_t i = piece.from; i < piece.to; ++i) {
      const Instant at = block.at[i];
      const std::int64_t since = gpu.last ? (at - *gpu.last).count() : 0;
      gpu.last = at;
      if (since > gpu.gap) {
        gap_seconds_ += static_cast<double>(since) / 1e9;
        settle(gpu);
        continue;
      }
      const double seconds = static_cast<double>(since) / 1e9;
      const bool hung = gpu.hung && gpu.hung->condition(i) == Truth::yes;
      const bool idle = gpu.idle.condition(i) == Truth::yes;
      const State state = hung ? State::hung : idle ? State::idle : State::none;
      const bool holds = hung ? gpu.hung->holds(i) : idle && gpu.idle.holds(i);
      sample(gpu, whose, state, holds, gpu.idle.condition(i) != Truth::unknown, at, seconds);
      if (const auto power = block[Metric::power]; !power.empty() && power[i] >= 0) {
        Use& use = by_holder_[whose];
        use.joules += static_cast<double>(power[i]) * seconds;
        use.powered += seconds;
      }
    }
  }
}

double wasted(const Use& use) { return use.idle + use.hung; }

void most_wasted_first(std::vector<UseOf>& uses) {
  std::stable_sort(uses.begin(), uses.end(), [](const UseOf& a, const UseOf& b) {
    if (a.nobody != b.nobody) return b.nobody;  // what nobody had comes last
    return std::pair(wasted(a.use), a.use.seconds()) > std::pair(wasted(b.use), b.use.seconds());
  });
}

ReportResult Adding::finish(trace::TraceReport report) {
  settle_all();
  ReportResult result;
  std::map<std::tuple<bool, std::string, std::string, std::string>, Use> uses;
  for (const auto& [key, use] : by_holder_) {
    std::string user;
    std::string command;
    std::string host = key.gpu < report.gpus.size() ? report.gpus[key.gpu].host : "";
    if (key.holder > trace::kNobody) {
      const trace::Holder& holder = report.holders[key.holder];
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
  result.has_power = result.total.powered > 0;
  result.gap_seconds = gap_seconds_;
  result.first = first_.value_or(Instant{});
  result.last = last_;
  result.trace = std::move(report);
  return result;
}

bool has_all(const std::vector<Metric>& there, const Rule& rule) {
  const std::vector<Metric> needed = rule.signals();
  return std::all_of(needed.begin(), needed.end(),
                     [&](Metric metric) { return std::find(there.begin(), there.end(), metric) != there.end(); });
}

}  // namespace

Use& Use::operator+=(const Use& more) {
  busy += more.busy;
  idle += more.idle;
  hung += more.hung;
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
  std::vector<std::int64_t> gaps = TRY(survey(reader));
  for (std::int64_t& gap : gaps) gap = options.gap ? options.gap->count() : gap_of(gap);
  const bool hangs = has_all(reader.available(), options.hung);
  Adding adding(options, hangs, std::move(gaps));
  trace::TraceReport read = TRY(reader.read(adding));
  ReportResult result = adding.finish(std::move(read));
  result.name = name_of(options.paths);
  result.idle_rule = options.idle.text;
  result.hung_rule = options.hung.text;
  result.judges_hangs = hangs;
  return result;
}

}  // namespace lull::replay
