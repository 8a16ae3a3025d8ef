#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/text.h"
#include "replay/judging.h"
#include "replay/recommend.h"
#include "replay/survey.h"
#include "rule/quantity.h"

namespace lull::replay {
namespace {

std::vector<Metric> rule_signals(const ReplayOptions& options) {
  std::vector<Metric> signals = options.policy.idle.signals();
  if (options.policy.arm)
    for (const Metric metric : options.policy.arm->signals())
      if (std::find(signals.begin(), signals.end(), metric) == signals.end()) signals.push_back(metric);
  return signals;
}

std::vector<Metric> wanted_signals(const ReplayOptions& options) {
  std::vector<Metric> wanted = rule_signals(options);
  const auto add = [&](Metric metric) {
    if (std::find(wanted.begin(), wanted.end(), metric) == wanted.end()) wanted.push_back(metric);
  };
  // What work is, and what tells that a job has gone.
  for (const Metric metric : {Metric::util, Metric::mem_used, Metric::procs}) add(metric);
  if (options.picture_columns > 0) add(Metric::power);
  return wanted;
}

// What a page shows: signals of GPUs that the trace has, the best known first.
std::vector<Metric> pictured(const std::vector<Metric>& available) {
  std::vector<Metric> metrics = available;
  std::sort(metrics.begin(), metrics.end());
  if (metrics.size() > 4) metrics.resize(4);
  return metrics;
}

JudgingOptions judging_options(const ReplayOptions& options, const trace::TraceReader& reader) {
  JudgingOptions judging;
  judging.policies.push_back(options.policy);
  judging.regret = options.regret;
  judging.missing = options.missing;
  judging.most_firings = options.most_firings;
  judging.gap = options.gap;
  judging.every = options.every;
  judging.delay = options.delay;
  judging.start = reader.first();
  judging.memory = options.memory / 2;
  judging.metrics = reader.available();
  if (any_learned(rule_signals(options)))
    for (const MetricInfo& row : kMetricTable)
      if (is_learned(row.metric)) judging.metrics.push_back(row.metric);
  judging.who = reader.has_owners();
  judging.per = options.per;
  judging.except_users = options.except_users;
  judging.picture_columns = options.picture_columns;
  judging.pictured = pictured(reader.available());
  return judging;
}

// All GPUs as one: who they are and how far their ticks are apart must be known before.
Result<> put_together(const ReplayOptions& options, trace::TraceReader& reader, JudgingOptions& judging) {
  trace::TraceReport report;
  const std::vector<Sampling> gpus = TRY(survey(reader, &report));
  std::vector<std::size_t> paced;  // those that have an interval, from the shortest on
  for (std::size_t gpu = 0; gpu < gpus.size(); ++gpu)
    if (gpus[gpu].twice_median != 0) paced.push_back(gpu);
  std::ranges::stable_sort(paced, {}, [&](std::size_t gpu) { return gpus[gpu].twice_median; });
  judging.pace.resize(gpus.size());
  for (std::size_t i = 0; i < paced.size(); ++i) judging.pace[paced[i]] = i + 1;
  trace::TraceOptions& how = reader.options();
  how.together = true;
  how.gpus = gpus.size();
  how.tick = paced.empty() ? trace::Paced{Duration(std::chrono::seconds(1)).count()}
                           : gpus[paced[paced.size() / 2]].interval;  // the median GPU decides
  const auto gaps_for = [&](const trace::Paced& interval) {
    return options.gap ? trace::Paced{options.gap->count()} : gaps_of(interval);
  };
  for (const Sampling& gpu : gpus) {
    how.gaps.push_back(gaps_for(gpu.interval));
    judging.sampled.add(gpu.time, how.gaps.back().longest());
  }
  judging.gaps = how.gaps;
  judging.gaps.push_back(gaps_for(how.tick));
  judging.gpus = gpus.size();
  if (options.per == Per::all) return {};
  how.who = judging.who = true;  // tells at which ticks a GPU showed itself
  std::map<std::string, std::size_t> numbers;
  for (std::size_t gpu = 0; gpu < report.gpus.size() && options.per == Per::host; ++gpu) {
    const auto [entry, fresh] = numbers.try_emplace(report.gpus[gpu].host, judging.hosts.size());
    if (fresh) judging.hosts.emplace_back();
    judging.hosts[entry->second].push_back(gpu);
    if (fresh) judging.host_names.push_back(report.gpus[gpu].host);
  }
  for (const trace::TraceGpu& gpu : report.gpus) judging.host_of.push_back(gpu.host);
  return {};
}

// Times before counts; a sweep may not mix them, since neither is longer.
bool shorter(const Span& a, const Span& b) { return a.samples != b.samples ? a.samples < b.samples : a.time < b.time; }

Result<> sort_spans(Axis& axis) {
  std::vector<std::pair<Span, std::string>> spans;
  for (const std::string& value : axis.values) spans.emplace_back(TRY(parse_span(value)), value);
  const bool counts = spans.front().first.samples != 0;
  for (const auto& [span, text] : spans)
    if ((span.samples != 0) != counts) return fail("--sweep for: either durations or numbers of samples, not both");
  std::stable_sort(spans.begin(), spans.end(), [](const auto& a, const auto& b) { return shorter(a.first, b.first); });
  for (std::size_t i = 0; i + 1 < spans.size(); ++i)
    if (spans[i].first == spans[i + 1].first)
      return fail(fmt::format("--sweep for: {} and {} are the same", spans[i].second, spans[i + 1].second));
  for (std::size_t i = 0; i < spans.size(); ++i) axis.values[i] = to_text(spans[i].first);
  return {};
}

}  // namespace

std::optional<double> Totals::lost_ratio() const {
  return work_seconds > 0 ? std::optional(lost_seconds / work_seconds) : std::nullopt;
}

Totals& Totals::operator+=(const Totals& more) {
  jobs += more.jobs;
  ended += more.ended;
  worked_again += more.worked_again;
  work_seconds += more.work_seconds;
  lost_seconds += more.lost_seconds;
  freed_until_return += more.freed_until_return;
  freed_until_release += more.freed_until_release;
  freed_until_recording_end += more.freed_until_recording_end;
  back += more.back;
  followed.insert(followed.end(), more.followed.begin(), more.followed.end());
  firings += more.firings;
  came_back += more.came_back;
  regretted += more.regretted;
  stretches += more.stretches;
  idle_seconds += more.idle_seconds;
  reclaimed_seconds += more.reclaimed_seconds;
  return *this;
}

void Totals::add_end(const Fate& fate, Leaving how) {
  ++ended;
  worked_again += how == Leaving::came_back ? 1 : 0;
  lost_seconds += fate.lost_seconds;
  (how == Leaving::came_back  ? freed_until_return
   : how == Leaving::released ? freed_until_release
                              : freed_until_recording_end) += fate.freed_seconds;
  if (fate.lost_sight)
    back.add(*fate.lost_sight - fate.at, Leaving::cut_off);
  else
    back.add((fate.back ? *fate.back : fate.last) - fate.at, how);
  if (how != Leaving::came_back)
    followed.push_back(static_cast<float>(std::chrono::duration<double>(fate.followed()).count()));
}

// The draws may all lie on one side of what was seen: that is inside in any case.
void Totals::set_interval(const std::optional<Interval>& interval) {
  const auto seen = lost_ratio();
  if (!interval || !seen) return;
  lost_low = std::min(interval->low, *seen);
  lost_high = std::max(interval->high, *seen);
}

std::optional<double> Totals::follow_up_median() const {
  if (followed.empty()) return std::nullopt;
  std::vector<float> sorted = followed;
  std::ranges::sort(sorted);
  const std::size_t half = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? static_cast<double>(sorted[half])
                                : (static_cast<double>(sorted[half - 1]) + static_cast<double>(sorted[half])) / 2;
}

const SweepRow* ReplayResult::main_row() const {
  const auto found = std::ranges::find_if(sweep, [](const SweepRow& row) { return row.recommended || row.closest; });
  return found == sweep.end() ? nullptr : &*found;
}

const Totals& ReplayResult::main_totals() const {
  const SweepRow* row = main_row();
  return row != nullptr ? row->totals : totals;
}

Result<ReplayResult> replay(ReplayOptions options) {
  TRY(start_from_first(options.policy, options.axes));
  std::vector<Combination> combinations = TRY(combine(options.policy, options.axes));
  auto reader = TRY(open_traces(options, wanted_signals(options), rule_signals(options), options.memory / 4));
  if (options.per == Per::job && !reader.has_owners())
    return fail(
        "--per job: the trace does not say which job has a GPU; `lull record` writes who does, and --columns "
        "job=COLUMN "
        "or pids=COLUMN says which column tells");
  if (!options.except_users.empty() && options.per != Per::gpu && options.per != Per::job)
    return fail("--except-user needs --per gpu or --per job: the GPUs of several users are judged together else");
  if (!options.except_users.empty() && !reader.has_owners())
    return fail(
        "--except-user: the trace does not say whose jobs they are; `lull record` writes it, and --columns user=COLUMN "
        "says which column tells");
  if (reader.counted()) options.every.reset();  // it said how far apart the samples are, and so they are judged
  if (options.every && options.per == Per::job)
    return fail("--every does not work with --per job: leave it out, and jobs are judged as they were recorded");

  JudgingOptions judging = judging_options(options, reader);
  for (const Combination& one : combinations) judging.policies.push_back(one.policy);
  if (options.per != Per::gpu) TRY(put_together(options, reader, judging));
  Judging sink(std::move(judging));
  Learning learning(sink);
  trace::TraceSink& first = any_learned(rule_signals(options)) ? static_cast<trace::TraceSink&>(learning) : sink;
  trace::TraceReport report;
  for (std::size_t done = 0; done <= combinations.size();) {
    const std::size_t next = sink.take_policies(done);
    report = TRY(reader.read(first));
    if (!sink.guessed_gaps()) {
      std::vector<trace::Paced> gaps;
      for (Sampling& gpu : TRY(survey(reader))) gaps.push_back(gaps_of(std::move(gpu.interval)));
      sink.know_gaps(std::move(gaps));
      continue;
    }
    if (!sink.guessed_levels()) continue;
    if (sink.guessed_start()) done = next;
  }
  note_missing_own(rule_signals(options), reader, report);
  ReplayResult result = sink.finish(std::move(report));
  result.name = name_of(options);
  result.rule = options.policy.idle.text;
  if (options.policy.arm) result.arm = options.policy.arm->text;
  result.per = options.per;
  result.tells_work = std::ranges::count(reader.available(), Metric::util) > 0;
  result.means = reader.holds_means();
  result.regret = options.regret;
  result.lose = options.lose;
  result.span = options.policy.idle.span();
  result.axes = std::move(options.axes);
  for (std::size_t i = 0; i < combinations.size(); ++i) {
    SweepRow& row = result.sweep[i];
    row.rule = combinations[i].policy.idle.text;
    row.span = combinations[i].policy.idle.span();
    for (std::size_t a = 0; a < result.axes.size(); ++a)
      row.values.push_back(result.axes[a].values[combinations[i].choice[a]]);
  }
  result.ends_rule = result.rule;
  recommend(result);
  for (SweepRow& row : result.sweep) {
    if (row.recommended || row.closest) {
      result.ends = std::move(row.ends);
      result.ends_rule = row.rule;
    }
    row.ends = {};
  }
  return result;
}

// ---- sweeps

Result<Axis> parse_axis(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos)
    return fail(fmt::format("--sweep: '{}' is not NAME=VALUE,…, such as for=5m,30m or util=1,5", printable(text)));
  Axis axis;
  axis.name = trim(text.substr(0, equals));
  if (axis.name != "for" && !metric_by_name(axis.name)) {
    std::vector<std::string_view> names = {"for"};
    for (const MetricInfo& row : kMetricTable) names.push_back(row.name);
    return fail(fmt::format("--sweep: '{}' is neither 'for' nor a signal{}", printable(axis.name),
                            did_you_mean(axis.name, names)));
  }
  for (const std::string_view value : split(text.substr(equals + 1), ',')) {
    if (trim(value).empty()) return fail(fmt::format("--sweep {}: a value is empty", axis.name));
    axis.values.emplace_back(trim(value));
    if (axis.name != "for") continue;
    if (auto span = parse_span(trim(value)); !span)
      return std::unexpected(std::move(span).error().during("--sweep for"));
  }
  return axis;
}

Result<std::vector<Combination>> combine(const Policy& base, std::vector<Axis>& axes) {
  std::vector<Combination> combinations;
  if (axes.empty()) return combinations;
  std::size_t count = 1;
  for (Axis& axis : axes) {
    for (const Axis& other : axes)
      if (&other != &axis && other.name == axis.name) return fail(fmt::format("--sweep {}: given twice", axis.name));
    if (axis.name == "for") TRY(sort_spans(axis));
    count *= axis.values.size();
    if (count > kMostCombinations) return fail(fmt::format("--sweep: more than {} combinations", kMostCombinations));
  }
  for (std::size_t i = 0; i < count; ++i) {
    Combination one{std::vector<std::size_t>(axes.size()), base};
    std::size_t rest = i;
    for (std::size_t a = axes.size(); a-- > 0; rest /= axes[a].values.size())
      one.choice[a] = rest % axes[a].values.size();
    for (std::size_t a = 0; a < axes.size(); ++a) {
      const std::string& value = axes[a].values[one.choice[a]];
      if (axes[a].name == "for")
        one.policy.idle = with_span(one.policy.idle, TRY(parse_span(value)));
      else if (const auto metric = metric_by_name(axes[a].name))
        one.policy.idle = TRY(with_limit(one.policy.idle, *metric, value));
    }
    combinations.push_back(std::move(one));
  }
  return combinations;
}

Result<> start_from_first(Policy& policy, const std::vector<Axis>& axes) {
  if (policy.idle.span()) return {};
  for (const Axis& axis : axes)
    if (axis.name == "for") policy.idle = with_span(policy.idle, TRY(parse_span(axis.values.front())));
  return {};
}

}  // namespace lull::replay
